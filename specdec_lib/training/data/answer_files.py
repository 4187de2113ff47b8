"""Files of answers: what drafters are trained on with `--data` and watched with `--watch`, checked record by record.

Knows neither models nor tokenizers.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path

from specdec_lib.files import broken_unicode
from specdec_lib.training.data.shards import read_shards
from specdec_lib.types import Refusal


def read_answers(path: Path, vocab: int | None = None, target: str | None = None) -> Iterator[Mapping]:
    """Records of a JSON-lines file (.gz or not), or of a folder of shards. Refusal for other content.

    Without `vocab`, token ids of any size pass; without `target`, as `name_of` gives it, shards of any target.
    """
    largest, whose = (2 ** 31, "") if vocab is None else (vocab, f" of this target, 0 to {vocab - 1}")
    for place, record in enumerate(read_shards(path, target) if path.is_dir() else read_json_lines(path), 1):
        output = record.get("output", []) if isinstance(record, Mapping) else None
        if (not isinstance(record, Mapping) or not isinstance(output, list)
                or not all(type(token) is int and 0 <= token < largest for token in output)):
            raise Refusal(f"record {place} of {path} has no output of token ids{whose}")
        refuse_odd_fields(record, f"record {place} of {path}")
        yield record


def refuse_odd_fields(record: Mapping, where: str) -> None:
    """Raises Refusal for a record whose texts are none, whose turns are odd, or whose temperature is no number.

    An answer too many in `earlier` would stand for the user's turn, and a forbidden prompt would not be seen.
    """
    earlier, temperature = record.get("earlier", []), record.get("temperature", 0)
    texts = [record.get(name, "") for name in ("source", "prompt", "system")]
    texts += earlier if isinstance(earlier, list) else [None]
    if not all(isinstance(text, str) and not broken_unicode(text) for text in texts):
        raise Refusal(f"{where} needs source and prompt as text, and where it has them system as text and earlier as a"
                      " list of texts")
    if len(earlier) % 2:
        raise Refusal(f"{where} needs earlier as a list of the user's turns and the answers by turns, and has"
                      f" {len(earlier)} texts there")
    if any(not turn.strip() for turn in [*earlier, record.get("prompt", "absent")][::2]):
        raise Refusal(f"{where} has a turn of the user without text: leave that record out")
    if type(temperature) not in (int, float) or not 0 <= temperature < inf:
        raise Refusal(f"{where} has the temperature {temperature!r}: it needs a number of 0 or more")


def read_json_lines(path: Path) -> Iterator[object]:
    """The values on the lines of a JSON-lines file; Refusal where it cannot be read."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            yield from (json.loads(line) for line in file if line.strip())
    except (OSError, EOFError, ValueError, zlib.error, RecursionError) as error:
        raise Refusal(f"{path} is no file of answers as JSON lines ({error})") from None
