"""Prompt files: JSON lines in Spec-Bench's format or with a user's prompts alone, read or refused in one sentence.

Source of the format: Spec-Bench (Xia et al. 2024), `data/spec_bench/question.jsonl`. A question with all its turns is
one prompt. A line without `question_id` and `category` has its number and the name of the file for them. Knows nothing
about tokenizers, models or how a prompt becomes token ids.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from specdec_lib import files
from specdec_lib.files import broken_unicode
from specdec_lib.hub.chat_template import Message, conversation
from specdec_lib.training.data.prompt_rows import NEEDED, system_in, turns_in
from specdec_lib.types import Refusal

Contents = TypeVar("Contents")
FAMILIES = ("multi_turn", "translation", "summarization", "qa", "math_reasoning", "rag")

# MT-Bench's names. Its `math` holds conversations; word problems with one number as answer are `math_reasoning`.
MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")

KNOWN = {"4b6d33e79484f9841c487ee87d1cf6aa8c6066f61d5d482ff09e5a007fafdf04": "Spec-Bench"}


@dataclass(frozen=True)
class Prompt:
    """One question with all its turns."""

    question_id: int | str
    category: str                       # as in the file
    family: str                         # one of FAMILIES, else the category itself
    turns: tuple[str, ...]
    reference: tuple[str, ...] | None   # flat, whatever the file's nesting; None where the file has none
    system: str | None = None           # what the system says before the user, in a chat of one's own

    def asked(self, answers: Sequence[str] = ()) -> list[Message]:
        """The conversation up to the turn behind these answers, whose answer is to come."""
        said = [text for pair in zip(self.turns, answers, strict=False) for text in pair]
        return conversation([*said, self.turns[len(answers)]], self.system)


def default_path() -> Path:
    """The file of the project's own prompts."""
    return Path(__file__).resolve().parents[2] / "data" / "prompts" / "workbook.jsonl"


def family_of(category: str) -> str:
    """The family of a category: MT-Bench's eight are `multi_turn`, an unknown one is its own."""
    return "multi_turn" if category in MT_BENCH else category


def file_sha256(path: str | Path) -> str:
    """Hexadecimal SHA-256 of the file's bytes; Refusal if it cannot be read."""
    return _read(Path(path), files.file_sha256)


def known_name(sha: str) -> str | None:
    """The published name of the file with this SHA-256, or None."""
    return KNOWN.get(sha.lower())


def load_prompts(path: str | Path) -> list[Prompt]:
    """All prompts of a file, in its order; raises Refusal naming the first line that cannot be used."""
    path = Path(path)
    try:
        text = _read(path, Path.read_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refusal(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    prompts, first_seen = [], {}
    for number, line in enumerate(text.split("\n"), start=1):    # splitlines() would cut at U+2028 inside a string
        if not line.strip():
            continue
        prompt = _prompt(line, number, path)
        key = str(prompt.question_id)                            # 7 and "7" name the same row of a result
        if key in first_seen:
            raise Refusal(f"line {number} of {path} repeats question_id {key} of line {first_seen[key]}: "
                          "give every question its own")
        first_seen[key] = number
        prompts.append(prompt)
    if not prompts:
        raise Refusal(f"{path} holds no prompts: it needs one JSON object a line")
    return prompts


def balanced(prompts: list[Prompt], limit: int | None) -> list[Prompt]:
    """`limit` prompts taken in turn from every family, the first ones of each, returned in the order of the file.

    Families take turns as in FAMILIES, others after them in file order; when one runs out, the rest fill up.
    None, or more than there are, takes all. Raises Refusal where limit is below 1.
    """
    if limit is None:
        return list(prompts)
    if limit < 1:
        raise Refusal(f"a limit of {limit} prompts leaves nothing to run: give 1 or more")
    places: dict[str, list[int]] = {family: [] for family in FAMILIES}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt.family, []).append(place)
    turns = ((turn, rank, place) for rank, members in enumerate(places.values())
             for turn, place in enumerate(members))
    return [prompts[place] for place in sorted(place for _, _, place in sorted(turns)[:limit])]


def _read(path: Path, how: Callable[[Path], Contents]) -> Contents:
    """`how(path)`; Refusal if the file is missing or cannot be read."""
    try:
        return how(path)
    except FileNotFoundError:
        raise Refusal(f"there is no prompt file at {path}: check the path") from None
    except OSError as error:
        raise Refusal(f"the prompt file {path} cannot be read ({error.strerror}): give a readable file") from None


def _prompt(line: str, number: int, path: Path) -> Prompt:
    """One line as a Prompt; its number names it in every refusal, and is its id where it has none."""
    where = f"line {number} of {path}"
    try:
        record = json.loads(line)
    except RecursionError:
        raise Refusal(f"{where} is nested too deeply to be a prompt: write an object with turns or prompt") from None
    except ValueError as error:
        raise Refusal(f"{where} is not valid JSON ({error}): write one JSON object a line") from None
    if not isinstance(record, dict):
        raise Refusal(f"{where} is not a JSON object: it needs turns or prompt")
    name, category = record.get("question_id", number), record.get("category", path.stem)
    if isinstance(name, bool) or not isinstance(name, int | str) or name == "":
        raise Refusal(f"{where} has question_id {name!r}: it must be a whole number or a name")
    if isinstance(name, int) and not -2 ** 63 <= name < 2 ** 63:
        raise Refusal(f"{where} has a question_id beyond 64 bits: write it as a name, in quotes")
    if not isinstance(category, str) or not category.strip():
        raise Refusal(f"{where} has category {category!r}: it must be a name")
    prompt = Prompt(name, category, family_of(category), _turns(turns_in(record, where), where),
                    _reference(record.get("reference"), where), system_in(record, where))
    if broken_unicode(str(name), category, *(prompt.reference or ())):
        raise Refusal(f"{where} has broken Unicode outside its turns, an escape of half a character: write it whole")
    return prompt


def _turns(turns, where: str) -> tuple[str, ...]:
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
        raise Refusal(f"{where} needs {NEEDED}")
    for number, turn in enumerate(turns, start=1):
        if not turn.strip():
            raise Refusal(f"{where} has an empty prompt (turn {number}): write its text or remove the line")
        if broken_unicode(turn):
            raise Refusal(f"{where} has broken Unicode in turn {number}, an escape of half a character: write it"
                          " whole")
    return tuple(turns)


def _reference(reference, where: str) -> tuple[str, ...] | None:
    """Every string of the reference in order; Spec-Bench has it absent, flat, or nested (rag)."""
    texts, waiting = [], [reference]
    while waiting:                                  # a stack, since nothing bounds the nesting of a user's file
        item = waiting.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif item is not None:
            raise Refusal(f"{where} needs reference to be a list of strings, got {type(item).__name__}")
    return tuple(texts) or None
