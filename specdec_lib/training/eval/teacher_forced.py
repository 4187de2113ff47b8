"""Predicted rates of a drafter: acceptance by depth and tokens per target forward, from one teacher-forced pass.

At temperature 0 a chain is accepted as long as each slot's best token is the target's. Under an accepted prefix the
drafter's input is the committed text, so one pass over the target's own answer gives every chain from every anchor,
and walking along it counts the rounds that the loop takes. `decoding.py` runs the loop; a test compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.training.data.batches import Batch
from specdec_lib.training.losses.chunked_head import pieces
from specdec_lib.training.nets.base import TrainableDrafter


@dataclass
class Tally:
    """Counts of a walk; `reached[k]` drafts reached depth k (from 0), in `accepted[k]` its token was accepted."""

    tokens: int = 0
    rounds: int = 0
    reached: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def add(self, streak: int, depth: int) -> None:
        """One round: `streak` of at most `depth` drafted tokens were accepted."""
        self.rounds += 1
        self.tokens += streak + 1
        for counts in (self.reached, self.accepted):
            counts += [0] * (depth - len(counts))
        for k in range(min(streak + 1, depth)):
            self.reached[k] += 1
            self.accepted[k] += k < streak

    def plus(self, other: Tally) -> Tally:
        """The sum of both counts."""
        size = max(len(self.reached), len(other.reached))

        def both(a: list[int], b: list[int]) -> list[int]:
            return [sum(pair) for pair in zip(a + [0] * (size - len(a)), b + [0] * (size - len(b)), strict=True)]

        return Tally(self.tokens + other.tokens, self.rounds + other.rounds, both(self.reached, other.reached),
                     both(self.accepted, other.accepted))

    def told(self) -> dict:
        """Counts and two rates: tokens per target forward, and acceptance by depth among drafts that reached it."""
        rates = [a / r if r else None for a, r in zip(self.accepted, self.reached, strict=True)]
        return {"tokens_per_target_forward": self.tokens / self.rounds if self.rounds else None,
                "conditional_acceptance": rates, "tokens": self.tokens, "rounds": self.rounds}


def matches(drafter: TrainableDrafter, batch: Batch, depth: int) -> list[Tensor]:
    """Per drafter [depth, B, S] bool: whether slot k's best token at anchor t is the target's, given a true prefix.

    Anchors are the rows before a token of the answer, since no walk uses others; false everywhere else. A drafter whose
    cost grows with the anchors has `slots_at(batch, depth, anchors)`, which leaves the others out.
    """
    fast, anchors = drafter.frozen.rows.dtype != torch.float32, batch.drafted(1)
    with torch.no_grad(), torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=fast):
        slots_at = getattr(drafter, "slots_at", None)
        streams = slots_at(batch, depth, anchors) if slots_at else drafter.slots(batch, depth)
        right = [best_tokens(drafter, batch, x, k if drafter.unrolled else 0, anchors) for k, x in enumerate(streams)]
    if drafter.unrolled:
        return [torch.stack(right[:depth])]
    return [torch.stack([batch.later(one, k) for k in range(depth)]) for one in right]


def best_tokens(drafter: TrainableDrafter, batch: Batch, x: Tensor, ahead: int, anchors: Tensor) -> Tensor:
    """[B, S] bool: whether the drafter's token (its head's best, or the one it has `proposed`) is the target's."""
    proposed = getattr(drafter, "proposed", None)
    if proposed:
        column = proposed(x[anchors], batch.later(batch.tokens, ahead)[anchors])
        token = drafter.frozen.ids.to(column.device)[column]
    else:
        token = most_likely(drafter, x[anchors], batch, anchors)
    right = torch.zeros_like(anchors)
    right[anchors] = token == batch.later(batch.top_ids[..., 0], ahead)[anchors]
    return right


def most_likely(drafter: TrainableDrafter, x: Tensor, batch: Batch, anchors: Tensor) -> Tensor:
    """The best token [n] at each anchor, of its vocabulary and with `text_tokens` of the text up to the anchor."""
    frozen = drafter.frozen
    value, column = best_column(x, frozen.rows)
    token = frozen.ids.to(column.device)[column]
    if frozen.every_row is None or not getattr(drafter, "text_tokens", False):
        return token
    texts, places = anchors.nonzero().unbind(1)
    for text in texts.unique().tolist():
        words, first = untrained(batch.tokens[text, :int(batch.stop[text])], frozen.columns)
        if len(words):
            mine = texts == text
            more = F.linear(x[mine].to(frozen.every_row.dtype), frozen.every_row[words]).float()
            best, word = more.masked_fill(first > places[mine, None], float("-inf")).max(-1)
            token[mine] = torch.where(best > value[mine], words[word], token[mine])
    return token


def best_column(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit of each of x [n, hidden] over these output rows, and its column."""
    found = [F.linear(some.to(rows.dtype), rows).float().max(-1) for some, in pieces(x)]
    return torch.cat([best.values for best in found]), torch.cat([best.indices for best in found])


def untrained(tokens: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens of a text that have no column, each once, and where each stands first."""
    words, which = tokens.unique(return_inverse=True)
    places = torch.arange(len(tokens), device=tokens.device)
    first = torch.full_like(words, len(tokens)).scatter_reduce(0, which, places, "amin")
    rare = columns[words] < 0
    return words[rare], first[rare]


def walk_answer(right: Tensor, start: int, stop: int) -> Tally:
    """The rounds over one answer, tokens start..stop - 1; `right` [depth, S] says which slots are right."""
    tally, at = Tally(), start - 1                 # the last known token
    rows = right.T.tolist()
    while at < stop - 1:
        depth = min(len(right), stop - 2 - at)     # as in the loop: one remaining token is the verdict's
        streak = next((k for k in range(depth) if not rows[at][k]), depth)
        tally.add(streak, depth)
        at += streak + 1
    return tally


def tallies(drafter: TrainableDrafter, batches: Iterable[tuple[Batch, Sequence[str]]],
            depth: int) -> list[dict[str, Tally]]:
    """Per drafter the tally of every family; `batches` come with the family of each example."""
    out: list[dict[str, Tally]] = []
    for batch, families in batches:
        found = matches(drafter, batch, depth)
        out = out or [{} for _ in found]
        for right, mine in zip(found, out, strict=True):
            for i, family in enumerate(families):
                tally = walk_answer(right[:, i].cpu(), int(batch.start[i]), int(batch.stop[i]))
                mine[family] = mine.get(family, Tally()).plus(tally)
    return out


def sum_tallies(by_family: dict[str, Tally]) -> Tally:
    """The sum of all families."""
    total = Tally()
    for tally in by_family.values():
        total = total.plus(tally)
    return total
