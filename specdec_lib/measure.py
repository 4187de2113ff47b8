"""Counts and rates of decodes. Counts are stored, rates are derived, and an undefined rate is None.

A `Row` is one round as plain numbers, times are seconds. Knows nothing about models
or files. Definitions follow Spec-Bench (Xia et al. 2024): tokens per target forward is its MAT.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specdec_lib.intervals import bootstrap
from specdec_lib.trees import offered
from specdec_lib.types import Round, Session


class Row(NamedTuple):
    """One round. `offered`: depths at which the draft went on below the accepted path, so accepted or accepted + 1."""

    source: str                                    # the drafter; "" = none or unknown
    drafted: int                                   # nodes submitted
    accepted: int
    offered: int
    emitted: int
    depth: int                                     # longest path of the draft
    width: int                                     # tokens fed to the verification: scored nodes + 1
    when: float
    what: float
    target: float
    how: float                                     # distributions, verdict and the loop's bookkeeping
    nll: float                                     # summed over the emitted tokens, under the raw target
    tokens: tuple[int, ...]
    origins: tuple[str, ...]                       # who proposed each emitted token; "" = the target itself
    margins: tuple[float, ...]                     # between the two best logits of the row of each emitted token
    not_best: int | None = None                    # emitted tokens below the target's best; None: unknown
    wall: float | None = None                      # of the whole round where its parts overlapped
    ahead: int | None = None                       # tokens drafted while the target verified; None: no such schedule
    branches: int | None = None                    # of them first tokens, alternatives for one position
    discarded: int | None = None                   # drafted tokens that this round's verdict made useless
    forward: int | None = None                     # number of the forward that a batch shared; None: its own
    kept: int | None = None                        # drafted tokens that were emitted, without a guide's; None: unknown

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the round: what every rate is computed from."""
        return self.busy if self.wall is None else self.wall

    @property
    def busy(self) -> float:
        """Seconds of all parts together; more than `seconds` where drafting and verifying overlapped."""
        return self.when + self.what + self.target + self.how


def row(round: Round) -> Row:
    """A round as plain numbers."""
    draft, path, emitted = round.draft, round.verdict.path, round.verdict.tokens
    said = draft.source or (round.budget.source,) * len(draft)
    source = said[path[0]] if path else (said[0] if said else "")
    rows = list(round.row_stats.rows)
    ids, logits = round.row_stats.tops
    two, best = [logits[row][:2] for row in rows], [likeliest(ids[row], logits[row]) for row in rows]
    scored = (round.ahead and round.ahead.scored) or len(draft) + 1
    return Row(source, len(draft), len(path), offered(round), len(emitted), draft.depth, scored,
               *round.seconds[:4], -sum(round.logprobs), emitted,
               tuple(said[i] or "draft" for i in path) + ("",) * (len(emitted) - len(path)),
               tuple(pair[0] - pair[-1] for pair in two),
               sum(token not in ids for token, ids in zip(emitted, best, strict=True)), round.seconds.wall,
               *(round.ahead[:3] if round.ahead else ()), kept=round.ahead.kept if round.ahead else None)


def likeliest(ids: Sequence[int], logits: Sequence[float]) -> set[int]:
    """The best token of a row, whose best stand first, with those that tie with it."""
    return {token for token, logit in zip(ids, logits, strict=True) if logit == logits[0]}


def rows(session: Session) -> tuple[Row, ...]:
    return tuple(row(round) for round in session.rounds)


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def tokens_per_target_forward(rows: Sequence[Row]) -> float | None:
    """Tokens emitted over target forwards after prefill, drafted or not. Plain decoding has exactly 1."""
    return share(sum(r.emitted for r in rows), len(rows))


def accepted_per_draft_round(rows: Sequence[Row]) -> float | None:
    """Accepted draft tokens over rounds that drafted. Never shown without `draft_round_share`."""
    return share(sum(r.accepted for r in rows), sum(r.drafted > 0 for r in rows))


def draft_round_share(rows: Sequence[Row]) -> float | None:
    return share(sum(r.drafted > 0 for r in rows), len(rows))


def acceptance_rate(rows: Sequence[Row]) -> float | None:
    """Accepted over submitted nodes: low for trees, so shown with the mean `width`."""
    return share(sum(r.accepted for r in rows), sum(r.drafted for r in rows))


def width(rows: Sequence[Row]) -> float | None:
    """Mean tokens fed to a verification; 1 = no draft."""
    return share(sum(r.width for r in rows), len(rows))


def conditional_acceptance(rows: Sequence[Row]) -> list[float]:
    """[d - 1] = share of acceptance at depth d, among rounds whose draft went on below the node accepted before."""
    deepest = max((r.offered for r in rows), default=0)
    return [sum(r.accepted >= d for r in rows) / sum(r.offered >= d for r in rows) for d in range(1, deepest + 1)]


def time_share(rows: Sequence[Row]) -> dict[str, float] | None:
    """Shares of the time of all parts, summing to one: the target's forwards, the drafter, and everything else."""
    total = sum(r.busy for r in rows)
    if not total:
        return None
    target, drafter = sum(r.target for r in rows) / total, sum(r.what for r in rows) / total
    return {"target": target, "drafter": drafter, "overhead": 1 - target - drafter}


def discarded_share(rows: Sequence[Row]) -> float | None:
    """Drafted tokens that a verdict made useless, over all whose fate is known (SpecBranch's rollback rate).

    Those still pending when a decode ends count nowhere. None without a schedule that drafts ahead; serial drafting
    discards what `acceptance_rate` leaves.
    """
    if any(r.ahead is None for r in rows):
        return None
    discarded = sum(r.discarded or 0 for r in rows)
    return share(discarded, discarded + sum(r.accepted if r.kept is None else r.kept for r in rows))


def target_nll(rows: Sequence[Row]) -> float | None:
    """Mean negative log-likelihood per emitted token under the raw target, nats."""
    return share(sum(r.nll for r in rows), sum(r.emitted for r in rows))


def not_best_per_100(rows: Sequence[Row]) -> float | None:
    """Of 100 emitted tokens those for which the target had a likelier one; None if an older table lacks it.

    At temperature 0 these are the tokens that a lossy rule accepted instead of the target's choice: plain decoding
    and every lossless rule have none. Above 0 plain decoding has some as well, since it samples.
    """
    counts = [r.not_best for r in rows if r.not_best is not None]
    return None if len(counts) < len(rows) else share(100 * sum(counts), sum(r.emitted for r in rows))


class Cost(NamedTuple):
    """What one prompt cost: `tokens` that took `seconds`."""

    tokens: float
    seconds: float


def speedup(base: Sequence[Cost], other: Sequence[Cost]) -> float | None:
    """Seconds per token of `base` over those of `other`, totals over the same prompts, in the same order."""
    (base_tokens, base_seconds), (tokens, seconds) = _totals(base), _totals(other)
    return base_seconds * tokens / (base_tokens * seconds) if base_tokens and seconds else None


def speedup_interval(base: Sequence[Cost], other: Sequence[Cost], draws: int = 4000,
                     seed: int = 0) -> list[float] | None:
    """95 % paired bootstrap over prompts of `speedup`; None below five prompts.

    "Faster" means that the whole interval lies above 1.
    """
    if len(base) != len(other):
        raise ValueError(f"pairs need the same prompts on both sides, got {len(base)} and {len(other)}")
    if speedup(base, other) is None:
        return None
    return bootstrap([base, other], lambda one, two: one[:, 1] * two[:, 0] / (one[:, 0] * two[:, 1]), draws, seed)


def share_interval(pairs: Sequence[tuple[float, float]], draws: int = 4000, seed: int = 0) -> list[float] | None:
    """95 % bootstrap over prompts of a share of totals, from (part, whole) per prompt; None below five prompts."""
    if not any(whole for _, whole in pairs):
        return None
    return bootstrap([pairs], lambda totals: totals[:, 0] / totals[:, 1], draws, seed)


Shares = Sequence[tuple[float, float]]              # (part, whole) of each prompt


def change(base: Shares, other: Shares) -> float | None:
    """The share of totals of `other` less that of `base`, of the same prompts in the same order."""
    one, two = (share(sum(part for part, _ in side), sum(whole for _, whole in side)) for side in (base, other))
    return None if one is None or two is None else two - one


def change_interval(base: Shares, other: Shares, draws: int = 4000, seed: int = 0) -> list[float] | None:
    """95 % paired bootstrap over prompts of `change`; None below five prompts."""
    if len(base) != len(other):
        raise ValueError(f"pairs need the same prompts on both sides, got {len(base)} and {len(other)}")
    if change(base, other) is None:
        return None
    return bootstrap([base, other], lambda one, two: two[:, 0] / two[:, 1] - one[:, 0] / one[:, 1], draws, seed)


def tokens_per_second(costs: Sequence[Cost]) -> float | None:
    return share(*_totals(costs))


def _totals(costs: Sequence[Cost]) -> tuple[float, float]:
    return sum(c.tokens for c in costs), sum(c.seconds for c in costs)


@dataclass(frozen=True)
class Divergence:
    """Where two outputs first differ: token 0 is the first one emitted; None = that output had ended."""

    position: int
    tokens: tuple[int | None, int | None]          # the base's and the other's
    margin: float | None                           # between the base's two best logits there


def divergence(base: Sequence[int], other: Sequence[int], margins: Sequence[float] = ()) -> Divergence | None:
    """The first difference, or None where both are equal to the last token."""
    if tuple(base) == tuple(other):
        return None
    place = next((i for i, (a, b) in enumerate(zip(base, other, strict=False)) if a != b), min(len(base), len(other)))
    one, two = (values[place] if place < len(values) else None for values in (base, other))
    return Divergence(place, (one, two), margins[place] if place < len(margins) else None)


def rouge_l(base: Sequence, other: Sequence) -> float | None:
    """ROUGE-L F1 (Lin 2004): twice the longest common subsequence over the sum of both lengths."""
    return share(2 * longest_common(base, other), len(base) + len(other))


def longest_common(one: Sequence, two: Sequence) -> int:
    """Length of the longest common subsequence, bit-parallel (Hyyroe 2004): one big-integer step per item of `two`."""
    where: dict = {}
    for place, item in enumerate(one):
        where[item] = where.get(item, 0) | 1 << place
    full = (1 << len(one)) - 1
    open_ = full                                   # a zero bit marks a column whose row rose
    for item in two:
        hits = open_ & where.get(item, 0)
        open_ = ((open_ + hits) | (open_ - hits)) & full
    return len(one) - open_.bit_count()


def repeated_4grams(outputs: Iterable[Sequence[int]]) -> float | None:
    """Share of 4-grams that occur earlier in the same output: loops, too, have a low target NLL."""
    counts = [counted_4grams(tokens) for tokens in outputs]
    return share(sum(again for again, _ in counts), sum(total for _, total in counts))


def counted_4grams(tokens: Sequence[int]) -> tuple[int, int]:
    """How many 4-grams of one output occur in it before, and how many there are."""
    grams = Counter(zip(*(tokens[i:] for i in range(4)), strict=False))
    return grams.total() - len(grams), grams.total()


NUMBER = re.compile(r"(?<!\d)[-+]?\d[\d,]*(?:\.\d+)?")


def final_number(text: str) -> float | None:
    """The last number of a text, its thousands' commas removed."""
    found = NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def reference_score(text: str, references: Sequence[str], number: bool = False) -> float | None:
    """The best match with any reference: ROUGE-L F1 of lower-case words, or 1 or 0 for the exact final number."""
    if number:
        wanted = {final_number(reference) for reference in references} - {None}
        return float(final_number(text) in wanted) if wanted else None
    said, *wanted = (re.findall(r"\w+", words.lower()) for words in (text, *references))
    scores = [rouge_l(words, said) for words in wanted]
    return max((s for s in scores if s is not None), default=None)
