"""What a target cannot run of the methods and drafters that a command takes by default, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.dice import Dice
from specdec_lib.loop import begin
from specdec_lib.specs import MethodSpec
from specdec_lib.types import Refusal

CHAINS_ONLY = "it drafts trees, and this target takes chains only"


def why_unusable(spec: MethodSpec | str, kit: Kit) -> str | None:
    """The reason why a method does not run on the kit's target; None where it does."""
    lacks = catalog.lacking(spec, kit)
    if lacks:
        return lacks
    try:
        wide = asks_for_trees(spec, kit)
    except Refusal as reason:                      # a checkpoint was trained for another target
        return str(reason)
    return CHAINS_ONLY if wide and getattr(kit.target, "takes_trees", True) is False else None


def asks_for_trees(spec: MethodSpec | str, kit: Kit) -> bool:
    """Whether the first budget of the method's policy, or of a drafter in it, has more than one child a node."""
    budget = catalog.build(spec, kit).when(begin((0, 1), 16), Dice(0))
    return max([budget.width, *(own.width for _, own in budget.sources)]) > 1


def refuse_trees(specs: Iterable[MethodSpec], kit: Kit) -> None:
    """Refusal for a method of trees where the kit's target takes chains only, before anything is measured.

    Another policy behind an @ may be wide and its drafter draft chains all the same: such a method is tried.
    """
    for spec in specs if getattr(kit.target, "takes_trees", True) is False else ():
        if "when" not in spec.replaced and asks_for_trees(spec, kit):
            raise Refusal(f"{spec} does not run here: {CHAINS_ONLY}, so name methods that draft chains, such as"
                          " sam or token-recycling(width=1)")


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
