"""A trial of specs before anything is loaded: the method is made with blanks in place of models and checkpoints.

A part that reads a model while it is made stays a blank as well; its values are checked once the model is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.sampling import Sampling
from specdec_lib.specs import MethodSpec
from specdec_lib.types import Refusal

NODES = (1, 1000)                                  # refused only if it is whatever the cost curve allows


class BlankUsed(Exception):
    """Something asked a blank for what only a loaded model has."""


class Blank:
    """Stands in for a model or a checkpoint; whoever reads it gets BlankUsed."""

    def __getattr__(self, name: str) -> Any:
        raise BlankUsed(name)

    def __call__(self, *words: Any, **more: Any) -> Any:
        raise BlankUsed


class Blanks(dict):
    """Every checkpoint is there, as a blank."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Blank:
        return Blank()

    def get(self, name: Any, default: Any = None) -> Any:
        return Blank()


def try_specs(specs: Iterable[MethodSpec], sampling: Sampling | None) -> None:
    """Refuses a spec whose values its parts refuse, as far as that is known without a model."""
    for spec in specs:
        whys = [why_not(spec, sampling, nodes) for nodes in NODES]
        if all(whys):
            raise Refusal(f"{spec}: {whys[0]}")


def why_not(spec: MethodSpec, sampling: Sampling | None, nodes: int) -> str:
    """Why this method cannot be made with such a node budget; "" if it can, or if only a model can tell."""
    blank = cast(Any, Blank())
    kit = Kit(blank, TokenizerFacts(vocab=1), sampling, nodes=nodes, draft=blank, recording=blank,
              checkpoints=cast(Mapping, Blanks()), parts=part_or_blank)
    try:
        catalog.build(spec, kit)
    except BlankUsed:
        return ""
    except Refusal as error:
        return "" if str(error).startswith(f"{spec.name} cannot be made") else str(error)
    return ""


def part_or_blank(name: str, kit: Kit, **values: Any) -> Any:
    """The part, or a blank where it reads a model."""
    try:
        return catalog.make_part(name, kit, **values)
    except BlankUsed:
        return Blank()
