"""What a target cannot run of the methods and drafters that a command takes by default, and why."""

from __future__ import annotations

from collections.abc import Mapping

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.loop import begin
from specdec_lib.specs import MethodSpec
from specdec_lib.types import NO_DICE, Refusal

CHAINS_ONLY = "it drafts trees, and this target takes chains only"


def why_unusable(spec: MethodSpec | str, kit: Kit) -> str | None:
    """The reason why a method does not run on the kit's target; None where it does.

    Only for methods that need no random numbers to choose their first budget.
    """
    lacks = catalog.lacking(spec, kit)
    if lacks:
        return lacks
    try:
        budget = catalog.build(spec, kit).when(begin((0, 1), 16), NO_DICE)
    except Refusal as reason:                      # a checkpoint was trained for another target
        return str(reason)
    widths = [budget.width, *(own.width for _, own in budget.sources)]
    return CHAINS_ONLY if max(widths) > 1 and getattr(kit.target, "takes_trees", True) is False else None


def why_unrecordable(part: str, kit: Kit) -> str | None:
    """The reason why a drafter's proposals cannot be recorded with this kit; None where they can.

    A drafter that learns from rejected nodes is recorded on the run of the method of its name.
    """
    card = catalog.part_card(part)
    lacks = catalog.lacking(card, kit)
    return why_unusable(part, kit) if not lacks and card.off_path else lacks or None


def left_out(why: Mapping[str, str]) -> str:
    """One line on what was left out, by name, and why."""
    return "left out by default: " + ", ".join(f"{name} ({reason})" for name, reason in why.items())
