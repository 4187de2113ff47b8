"""Learning curves: tokens per target forward over the tokens seen, on held-out answers and on other people's prompts.

A curve comes from the log of one fit, whose learning rate falls as a cosine. Points in the middle of a run therefore
lie below what a run of that length would end with, and the curve says nothing about longer runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from specdec_lib.files import write_text
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "results" / "learning-curves.json"
TAU = "tokens_per_target_forward"


class Look(NamedTuple):
    """One measurement: tokens seen so far, earlier fits included, and tokens per target forward of both kinds."""

    tokens: int
    held_out: float                                # answers of the kinds trained on
    watched: float                                 # answers to other people's prompts, never trained on


@dataclass(frozen=True)
class LearningCurve:
    """The looks of one fit in order, and its provenance."""

    name: str
    looks: tuple[Look, ...]
    made: Mapping[str, Any]

    @property
    def gain(self) -> Look:
        """What the fit added from its first look to its last."""
        first, last = self.looks[0], self.looks[-1]
        return Look(last.tokens - first.tokens, last.held_out - first.held_out, last.watched - first.watched)

    def points(self, kind: str) -> list[tuple[float, float]]:
        """(million tokens seen, tokens per target forward) of `held_out` or `watched`."""
        return [(look.tokens / 1e6, getattr(look, kind)) for look in self.looks]


def looks_of(log: Sequence[Mapping[str, Any]], name: str, before: int = 0) -> tuple[Look, ...]:
    """The looks in the log of a fit that watched answers; `before` are the tokens that its checkpoint had seen.

    Raises Refusal for a log without them: `--watch` was not given.
    """
    found = tuple(Look(before + line["tokens"], line["held_out"][name][TAU], line["watched"][name][TAU])
                  for line in log if name in line.get("held_out", {}) and name in line.get("watched", {}))
    if len(found) < 2:
        raise Refusal(f"this log of {name} watched no answers: train with --watch FILE")
    return found


def keep_curves(logs: Mapping[str, Sequence[Mapping[str, Any]]], made: Mapping[str, Mapping[str, Any]], out: Path,
                watched: Mapping[str, Any]) -> None:
    """Writes the curves of these logs as JSON; `made` is each fit's provenance, with `tokens_before` if it went on.

    It also names the `drafter` where the fit itself has another name.
    """
    runs = {name: {"made": dict(made[name]),
                   "looks": looks_of(log, made[name].get("drafter", name), made[name].get("tokens_before", 0))}
            for name, log in logs.items()}
    write_text(out, json.dumps({"watched": dict(watched), "runs": runs}, indent=1, ensure_ascii=False) + "\n")


def load_curves(path: Path = SHIPPED) -> tuple[LearningCurve, ...]:
    """The curves of a file that `keep_curves` wrote; Refusal for another one."""
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return tuple(LearningCurve(name, tuple(Look(*look) for look in run["looks"]), run["made"])
                     for name, run in runs.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"{path} holds no learning curves ({type(error).__name__})") from None
