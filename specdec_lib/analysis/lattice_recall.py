"""What recorded lattices are worth: where in each slot the target's token stands, counted over the places of a text.

Exact for the recorded text alone; nothing is run. A slot is counted wherever the text has a token for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_lib.models.replay import Recording

Ranks = tuple[tuple[int | None, ...], ...]         # of each place, of each slot; 0 is the best, None no candidate


def ranks_by_slot(recording: Recording, drafter: str, slots: int) -> Ranks:
    """Where the token that came stands among a slot's candidates, from every place of the output.

    Refusal where this drafter's lattices were not recorded.
    """
    out = []
    for place in range(recording.prompt, len(recording.tokens)):
        ids = recording.lattice(drafter, place, slots).ids.tolist()
        out.append(token_ranks(ids, recording.tokens[place:place + slots]))
    return tuple(out)


def token_ranks(ids: Sequence[Sequence[int]], tokens: Sequence[int]) -> tuple[int | None, ...]:
    """The place of each token among the candidates `ids [slots][m]` of its slot; as long as the shorter of the two."""
    return tuple(row.index(token) if token in row else None for row, token in zip(ids, tokens, strict=False))


def recall_by_slot(found: Ranks, best: int) -> list[float | None]:
    """By slot, the share of places where the target's token is among the `best` first; None where no text reaches."""
    return [_share([rank is not None and rank < best for rank in column]) for column in _columns(found)]


def goes_on(found: Ranks) -> list[float | None]:
    """By depth, how often the chain of best candidates is right where it was right so far; None where it never was."""
    out = []
    for depth in range(len(_columns(found))):
        reached = [row for row in found if len(row) > depth and all(rank == 0 for rank in row[:depth])]
        out.append(_share([row[depth] == 0 for row in reached]))
    return out


def _columns(found: Ranks) -> list[list[int | None]]:
    return [[row[slot] for row in found if len(row) > slot] for slot in range(max(map(len, found), default=0))]


def _share(hits: list[bool]) -> float | None:
    return sum(hits) / len(hits) if hits else None
