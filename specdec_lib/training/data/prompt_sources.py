"""Where prompts come from: the target makes them up, or a file has them; and which ones never pass.

A chat model that is left at the point where the user's turn begins writes a user's turn. What we measure with is kept
out by its text, whatever its case and blanks.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec_lib.files import broken_unicode
from specdec_lib.hub.tokenizer import HALF, Tokenizer
from specdec_lib.training.data.examples import normalised
from specdec_lib.training.data.prompt_rows import NEEDED, system_in, turns_in
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).resolve().parents[3] / "data" / "prompts"
SENTINEL = "specdec-user-turn"                     # stands for the user's words in a rendered conversation
SHORTEST, LONGEST, WORDS = 12, 1500, 3             # characters; words at least
RAW = "Question:"                                  # opens a text of a model with neither template nor begin token


@dataclass(frozen=True)
class Asked:
    """What a user says turn by turn, what kind of prompt that is, and what the system says before."""

    turns: tuple[str, ...]
    source: str                                    # its `family`, else the name of the file
    system: str | None = None


class Sieve:
    """Lets every text through once, and forbidden ones never; texts are compared by `normalised`."""

    def __init__(self, closed: Iterable[str] = ()):
        self.closed = set(map(normalised, closed))

    def admit(self, text: str) -> bool:
        """Whether this is the first time; it is closed afterwards."""
        key = normalised(text)
        if key in self.closed:
            return False
        self.closed.add(key)
        return True


def opener(text: Tokenizer) -> tuple[int, ...]:
    """Ids of a conversation up to where the user's words begin; without a template the begin token or a few words."""
    if not text.has_template:
        begin = text.tokenizer.bos_token_id
        return tuple(text.encode(RAW)) if begin is None else (begin,)
    try:
        written = text.written([SENTINEL])
    except Exception as error:                     # templates are small programs and raise what they like
        raise Refusal(f"the chat template cannot write a user's turn ({error}): give prompts in a file") from error
    before, found, _ = written.partition(SENTINEL)
    ids = tuple(text.tokenizer.encode(before, add_special_tokens=False)) if found else ()
    if not ids:
        raise Refusal("the chat template does not show where the user's turn begins: give prompts in a file")
    return ids


def self_prompts(text: Tokenizer, output: Sequence[int]) -> str | None:
    """The prompt that the target wrote after `opener`; None if it is not over, too short or long, or has control
    tokens in it. Without a template a prompt is the first line."""
    ended = bool(output) and output[-1] in text.facts.end
    ids = tuple(output[:-1]) if ended else tuple(output)
    if not text.has_template:
        control = next((i for i, token in enumerate(ids) if token in text.facts.control), len(ids))
        line, newline, _ = text.decode(ids[:control]).lstrip().partition("\n")
        return cleaned(line) if newline or ended or control < len(ids) else None
    if not ended or text.facts.control.intersection(ids):
        return None
    return cleaned(text.decode(ids))


def cleaned(written: str) -> str | None:
    """The text without blanks around it, if it is whole characters and of a size to answer."""
    written = written.strip()
    sized = SHORTEST <= len(written) <= LONGEST and len(written.split()) >= WORDS
    return written if sized and HALF not in written else None


def read_prompts(path: str | Path) -> list[str]:
    """The first turn of every line of a JSON-lines file, as `prompt_rows` reads it.

    Refusal naming the first line that has none.
    """
    return [turns[0] for turns in every_turn(path)]


def read_conversations(path: str | Path) -> list[Asked]:
    """All turns of every line of such a file, packed with gzip or not, with the line's `family` as their source."""
    name = Path(path).name.removesuffix(".gz").rpartition(".")[0] or Path(path).name
    return [Asked(tuple(turns_of(row, where)), row["family"] if isinstance(row.get("family"), str) else name,
                  system_in(row, where))
            for row, where in rows_of(path)]


def texts(path: str | Path) -> list[str]:
    """Every turn of every line of such a file: what must not be trained on."""
    return [turn for turns in every_turn(path) for turn in turns]


def shipped() -> list[str]:
    """The project's own prompts, to measure with and to tune on; none where the package stands without its data."""
    return [turn for path in sorted(SHIPPED.glob("*.jsonl")) for turn in texts(path)]


def every_turn(path: str | Path) -> list[list[str]]:
    return [turns_of(row, where) for row, where in rows_of(path)]


def rows_of(path: str | Path) -> Iterator[tuple[dict, str]]:
    """The object of every line that is not blank, and what to call the line in a refusal."""
    some = False
    for n, line in enumerate(read(Path(path)).split("\n"), 1):
        if line.strip():
            some, where = True, f"line {n} of {path}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise Refusal(f"{where} is not valid JSON: write one JSON object a line") from None
            yield row if isinstance(row, dict) else {}, where
    if not some:
        raise Refusal(f"{path} holds no prompts: it needs one JSON object a line")


def read(path: Path) -> str:
    """The text of a file, unpacked where its name ends with .gz; Refusal where there is none."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise Refusal(f"there is no prompt file at {path}: check the path") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise Refusal(f"the prompt file {path} cannot be read as UTF-8 text ({error}): save it as UTF-8 text, packed by"
                      " gzip where its name ends with .gz") from None


def turns_of(row: dict, where: str) -> list[str]:
    """The turns of one line's object; `where` names it in a refusal."""
    turns = turns_in(row, where)
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise Refusal(f"{where} needs {NEEDED}")
    if broken_unicode(*turns):
        raise Refusal(f"{where} has broken Unicode, an escape of half a character: write it whole")
    return turns
