"""The value of a trigger: at each position of a recorded text, which of two drafters does better.

Source: the question of ReSpec (arXiv 2511.01282), answered with both drafters. Tokens are counted on the recorded
greedy text; milliseconds are predicted from a cost curve and a price per level of drafting. The choice does not matter
where retrieval has no draft, because a switch then uses the model, and where both do equally well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from specdec_lib.cost.lengths import RoundOffer
from specdec_lib.trees import accepted_depth
from specdec_lib.types import Draft
from specdec_lib.when.entropy_trigger import decide


class TriggerQuality(NamedTuple):
    """A trigger's firings against the positions where retrieval is better, among those where the choice matters."""

    places: int
    fired: int
    hits: int                                      # fired where retrieval is better
    worth: int

    @property
    def precision(self) -> float | None:
        """Share of firings where retrieval is better; None if it never fired."""
        return self.hits / self.fired if self.fired else None

    @property
    def recall(self) -> float | None:
        """Share of the positions where retrieval is better at which it fired; None if there are none."""
        return self.hits / self.worth if self.worth else None


def round_offers(drafts: Sequence[Draft], text: Sequence[int], forward_ms: Callable[[int], float],
                 level_ms: float = 0.0) -> tuple[RoundOffer, ...]:
    """One offer per position; `drafts[i]` precedes `text[i]`; `forward_ms(width)`, `level_ms` per drafted level."""
    out = []
    for place, draft in enumerate(drafts):
        tokens = min(accepted_depth(draft, text[place:]) + 1, len(text) - place)  # no token behind the end
        out.append(RoundOffer(len(draft), tokens, forward_ms(len(draft) + 1) + level_ms * draft.depth))
    return tuple(out)


def oracle_decisions(retrieved: Sequence[RoundOffer], modelled: Sequence[RoundOffer]) -> tuple[bool | None, ...]:
    """Whether retrieval commits more tokens per millisecond than the model; None where the choice does not matter."""
    return tuple(None if not one.drafted or one.rate == other.rate else one.rate > other.rate
                 for one, other in zip(retrieved, modelled, strict=True))


def trigger_decisions(entropies: Sequence[float], look_back: int, penalty: float,
                      threshold: float) -> tuple[tuple[bool, int], ...]:
    """(retrieve?, k*) at every position of a text, from the entropies of the rows before it."""
    return tuple(decide(entropies[max(0, place - look_back):place], look_back, penalty, threshold)
                 for place in range(len(entropies)))


def firing_text(texts: Sequence[Sequence[float]], look_back: int, penalty: float, thresholds: Sequence[float]) -> str:
    """At how many tokens of these texts (entropies in nats) the trigger fires, threshold by threshold."""
    every = sum(map(len, texts))
    fired = {one: sum(fires for some in texts for fires, _ in trigger_decisions(some, look_back, penalty, one))
             for one in thresholds}
    told = (f"{count} of {every} tokens ({count / max(1, every):.0%}) at {one:g} nats" for one, count in fired.items())
    return f"the trigger fires at {', '.join(told)}"


def trigger_quality(fires: Sequence[bool], worth: Sequence[bool | None]) -> TriggerQuality:
    """Firings against the oracle; positions where the choice does not matter are left out."""
    pairs = [(fired, good) for fired, good in zip(fires, worth, strict=True) if good is not None]
    return TriggerQuality(len(pairs), sum(fired for fired, _ in pairs), sum(fired and good for fired, good in pairs),
                          sum(good for _, good in pairs))


def precision_text(trigger: TriggerQuality, copies: TriggerQuality) -> str:
    """How often a trigger's firings were right, beside copies at every position, with the standard error."""
    if trigger.precision is None or copies.precision is None:
        return f"No firing to judge: of {trigger.places} positions where the choice matters it fired at {trigger.fired}"
    base = copies.precision
    return (f"Right: {trigger.precision:.1%} of the trigger's firings, {base:.1%} of all copies; standard error "
            f"{(base * (1 - base) / trigger.fired) ** 0.5:.1%}")


def auc(values: Sequence[float], worth: Sequence[bool | None]) -> float | None:
    """AUC: probability that a position where retrieval is better has the larger value; a tie counts half.

    It is 0.5 for an uninformative signal and needs no threshold. None if either kind of position is missing.
    """
    good = [value for value, one in zip(values, worth, strict=True) if one]
    bad = [value for value, one in zip(values, worth, strict=True) if one is False]
    if not good or not bad:
        return None
    return sum((a > b) + (a == b) / 2 for a in good for b in bad) / (len(good) * len(bad))
