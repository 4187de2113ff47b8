"""Rank of the target's token in each slot of recorded lattices, and what chains through them would have accepted.

Counts on the recorded text; no model runs. A slot counts wherever the text has a token for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, takewhile
from operator import mul

from specdec_lib.analysis.guess_calibration import Guesses
from specdec_lib.lazy import torch
from specdec_lib.models.replay import Recording
from specdec_lib.types import Lattice

Place = tuple[Lattice, Sequence[int]]              # the slots drafted at a position, and the tokens that followed there
Ranks = tuple[tuple[int | None, ...], ...]         # [position][slot]; 0 is the best, None: no candidate


def ranks_by_slot(recording: Recording, drafter: str, slots: int) -> Ranks:
    """The rank of the target's token among the candidates of each slot, from every position of the output.

    Refusal if this drafter's lattices were not recorded.
    """
    out = []
    for place in range(recording.prompt, len(recording.tokens)):
        ids = recording.lattice(drafter, place, slots).ids.tolist()
        out.append(token_ranks(ids, recording.tokens[place:place + slots]))
    return tuple(out)


def token_ranks(ids: Sequence[Sequence[int]], tokens: Sequence[int]) -> tuple[int | None, ...]:
    """The rank of each token among the candidates `ids[slot]` of its slot; as long as the shorter of the two."""
    return tuple(row.index(token) if token in row else None for row, token in zip(ids, tokens, strict=False))


def recall_by_slot(found: Ranks, best: int) -> list[float | None]:
    """By slot that some text reaches, the share of positions with the target's token among the `best` first."""
    return [_share([rank is not None and rank < best for rank in column]) for column in _columns(found)]


def chain_acceptance(found: Ranks) -> list[float | None]:
    """By depth, how often the chain of best candidates is right if it was right so far; None if it never was."""
    out = []
    for depth in range(len(_columns(found))):
        reached = [row for row in found if len(row) > depth and all(rank == 0 for rank in row[:depth])]
        out.append(_share([row[depth] == 0 for row in reached]))
    return out


def drawn_accepted(places: Sequence[Place], chains: Iterable[int], temperature: float) -> dict[int, float]:
    """Number of chains -> expected accepted tokens per place at temperature 0, if so many are drawn at `temperature`.

    A chain takes one candidate per slot from their softmax, as `SampledChains` with `best=False` does; a token that is
    no candidate is never drawn. All chains are verified, so a token counts where one of them has the text up to it.
    """
    begins = []
    for lattice, came in places:
        right = [float(torch.softmax(logp.double() / temperature, 0)[ids == token].sum())
                 for ids, logp, token in zip(lattice.ids, lattice.logp, came, strict=False)]
        begins += accumulate(right, mul)
    return {k: sum(1 - (1 - q) ** k for q in begins) / max(1, len(places)) for k in chains}


def best_accepted(places: Sequence[Place]) -> float:
    """Accepted tokens per place at temperature 0 of one chain, the best candidate of every slot."""
    ranks = [token_ranks(lattice.ids.tolist(), came) for lattice, came in places]
    return sum(sum(1 for _ in takewhile(lambda rank: rank == 0, row)) for row in ranks) / max(1, len(ranks))


def drawn_beside_best(drafter: str, best: float, drawn: Mapping[int, float]) -> str:
    """How many drawn chains give as many accepted words as the one chain of best words; `drawn` by number of chains."""
    one, needed = drawn[min(drawn)], next((k for k in sorted(drawn) if drawn[k] >= best), None)
    reach = f"{max(drawn)} drawn chains give fewer" if needed is None else f"{needed} drawn chains reach the best words"
    if needed == min(drawn):
        reach = "drawing loses nothing"
    return f"{drafter}: the chain of best words has {best:.2f} accepted words, one drawn chain {one:.2f}; {reach}."


def chain_guesses(found: Iterable[Sequence[int | None]]) -> list[Guesses]:
    """By depth, how many chains of best candidates were right so far, and how many of them are right there."""
    rows = list(found)
    return [Guesses(len(some), sum(row[depth] == 0 for row in some)) for depth in range(max(map(len, rows), default=0))
            for some in [[row for row in rows if len(row) > depth and all(rank == 0 for rank in row[:depth])]]]


def one_at_a_time(found: Ranks) -> Ranks:
    """The ranks of the same drafter asked for one token at a time, with the true text before each of them."""
    return tuple(tuple(later[0] for later in found[at:at + len(row)]) for at, row in enumerate(found))


def _columns(found: Ranks) -> list[list[int | None]]:
    return [[row[slot] for row in found if len(row) > slot] for slot in range(max(map(len, found), default=0))]


def _share(hits: list[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None
