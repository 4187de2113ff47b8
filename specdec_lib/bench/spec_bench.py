"""A finished run as answer files of Spec-Bench, one for each method, so that its own evaluation script can read them.

Format: hemingkx/Spec-Bench (Xia et al. 2024), one JSON object a question. A repeat is a choice, `wall_time` includes
prefill, `new_tokens` are counted from ids up to and including the end token, and `accept_lengths` holds the tokens of
every round, the target's own token included, so that plain decoding's are 1.

What that script makes of the files, and where it misleads:
- Mean accepted tokens is the mean of all `accept_lengths`: exactly our tokens per target forward.
- Tokens per second is a mean over questions of tokens / seconds, and the speed-up is the ratio of two such means. Ours
  is the ratio of totals, so that the two differ wherever questions gain unequally.
- Its baseline is not counted from `new_tokens`: its answers are tokenised again, less one token each for a begin
  token, which many tokenizers do not add, and without the end token, which the method keeps. Of 10 ids it counts 8 or
  9, so a method of the same speed seems 11 % or 25 % faster; long answers hide it.
- It reads the first choice alone, so repeats do not count, and pairs two files by line, so the shorter one ends the
  check of equal answers, which compares text.
- Of its tasks, `mt_bench` are eight categories; our file keeps the categories of the prompts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from specdec_lib.bench import prompts as prompt_files
from specdec_lib.bench import results
from specdec_lib.bench.results import Decode
from specdec_lib.types import Refusal

MULTI_TURN = "multi_turn"


def answer_lines(decodes: Iterable[Decode], method: str, categories: Mapping[str, str], created: float) -> list[dict]:
    """One record a question of one method, in the run's order; `categories` by question as text, `created` in seconds.

    Refusal for a peer, whose rounds nobody saw, and for a method that the run does not have.
    """
    own = list(results.select(decodes, method=method))
    if not own:
        raise Refusal(f"the run has no method {method}: `specdec export` without --method writes those that it has")
    if any(one.peer for one in own):
        raise Refusal(f"{method} is a peer, whose rounds were not seen: an answer file needs the accepted tokens of"
                      " every round, so leave it out")
    return [record(question, group, method, categories, created) for question, group in results.prompts(own).items()]


def record(question: int | str, group: Sequence[Decode], method: str, categories: Mapping[str, str],
           created: float) -> dict[str, Any]:
    """The record of one question: its turns by repeat."""
    digest = hashlib.sha256(f"{method}|{question}|{created}".encode()).hexdigest()
    return {"question_id": question, "category": categories.get(str(question), group[0].family),
            "answer_id": digest[:22], "model_id": method,
            "choices": [choice(repeat, group) for repeat in sorted({one.repeat for one in group})], "tstamp": created}


def choice(repeat: int, group: Sequence[Decode]) -> dict[str, Any]:
    """One repeat: lists per turn, and the lengths of all its rounds in one list."""
    turns = sorted((one for one in group if one.repeat == repeat), key=lambda one: one.turn)
    return {"index": repeat, "turns": [one.text for one in turns],
            "decoding_steps": [len(one.outcome.rows) for one in turns],
            "new_tokens": [len(one.outcome.tokens) for one in turns],
            "wall_time": [one.outcome.prefill + one.outcome.seconds for one in turns],
            "accept_lengths": [row.emitted for one in turns for row in one.outcome.rows]}


def methods_of(decodes: Iterable[Decode]) -> tuple[list[str], list[str]]:
    """Names of methods and of peers, in the run's order."""
    named = dict.fromkeys((one.method, one.peer) for one in decodes)
    return [name for name, peer in named if not peer], [name for name, peer in named if peer]


def categories_of(summary: Mapping[str, Any], decodes: Iterable[Decode], path: Path | None) -> dict[str, str]:
    """Question, as text -> category, from the prompts of the run: `path`, or the shipped file if it is that.

    Without them a family is its own category. Refusal for the wrong file, and where Spec-Bench's eight categories of
    conversations are needed and not known.
    """
    asked = str(summary.get("prompts", {}).get("sha256"))
    shipped = prompt_files.default_path()
    file = path or (shipped if prompt_files.file_sha256(shipped) == asked else None)
    if file is not None:
        if prompt_files.file_sha256(file) != asked:
            raise Refusal(f"{file} is not the file of this run's prompts (SHA-256 {asked[:16]}...): give that one")
        return {str(one.question_id): one.category for one in prompt_files.load_prompts(file)}
    families = {one.family for one in decodes}
    if MULTI_TURN in families:
        raise Refusal(f"the run does not say which of MT-Bench's categories its conversations have: give --prompts"
                      f" {summary.get('prompts', {}).get('file')}, the file that it was measured on")
    return {}


def seconds_of(created: Any) -> float:
    """An ISO date in seconds since 1970; Refusal where it is none."""
    try:
        return datetime.fromisoformat(created).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise Refusal(f"the run's summary.json gives {str(created)[:40]!r} as its date: copy the run again") from None


def as_text(lines: Iterable[Mapping[str, Any]]) -> str:
    """JSON lines."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
