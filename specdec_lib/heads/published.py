"""The kinds of published drafters that can be read, and which trained drafter each replaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from specdec_lib.heads.public_block import PublicBlock, load_public_block
from specdec_lib.heads.public_eagle import PublicEagle, load_public_eagle
from specdec_lib.types import LM


class Published(NamedTuple):
    """A kind of published drafter."""

    stands_for: str                                # the trained drafter that it replaces
    what: str                                      # as a sentence names it
    such_as: str                                   # a method that drafts with it
    load: Callable[[Path, LM, str], Any]           # from a folder, for a target, under a name; Refusal where it fails
    told: Callable[[Any], str]                     # what a line says of a loaded one


def eagle_told(head: PublicEagle) -> str:
    taps = ", ".join(map(str, head.layout.taps))
    return (f"{head.layout.kind}'s layout, hidden states after {taps} layers, {head.layout.rows:,} tokens that it can"
            " draft")


def block_told(drafter: PublicBlock) -> str:
    layout = drafter.layout
    return (f"{layout.shape.layers} layers, hidden states after {', '.join(map(str, layout.taps))} layers, blocks of"
            f" {layout.block} tokens")


KINDS = {                                          # by the name of their option
    "eagle": Published("eagle", "an EAGLE head", "eagle2", load_public_eagle, eagle_told),
    "dflash": Published("block-diffusion", "a block drafter", "ddtree", load_public_block, block_told),
}
