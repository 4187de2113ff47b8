"""Paths through a lattice: select the candidates of each slot, and search for those that follow each other.

Source: DiffuSpec (Li et al. 2025, arXiv 2510.02358), Eq. 7 (candidates by cumulative mass) and Eq. 8 (the score of a
path). Pure functions of numbers: slots are given as a `Lattice`, and the model of token order as a `Proxy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from specdec_lib.lazy import torch
from specdec_lib.types import Lattice, Refusal, Session, up_to_end

NOTHING = -1                                       # placeholder for a missing token
SCORES = ("mean", "sum", "accepted")


class Proxy(Protocol):
    """A cheap model of token order: log p of `tokens [..., m]` after the two tokens `contexts [..., 2]`, nats."""

    def logp_batch(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray: ...


class LatticeDrafter(Protocol):
    """A drafter with a lattice: the candidates of its slots."""

    def lattice(self, session: Session, depth: int, top: int = 16) -> Lattice: ...


@dataclass(frozen=True)
class Path:
    """One way through a lattice: its tokens, its score, and the log-probability of each token in its slot."""

    tokens: tuple[int, ...]
    score: float
    logp: tuple[float, ...]


class PathRules(NamedTuple):
    """The parameters of `narrow` and `search`."""

    mass: float = 0.8
    cap: int = 15
    keep_end: bool = True
    weight: float = 0.5
    beam: int = 3
    score: str = "mean"


class FoundPaths(NamedTuple):
    """The best paths first, the number of candidates of each slot, and the statistics of each slot."""

    paths: tuple[Path, ...]
    kept: tuple[int, ...]                          # up to the first slot whose best token is an end token
    slots: tuple[tuple[float, ...], ...]           # two best probabilities and entropy (nats)


def to_host(lattice: Lattice) -> Lattice:
    """The same lattice on the host, in double precision, in one transfer."""
    if lattice.logp.device.type != "cpu":
        both = torch.stack((lattice.ids.double(), lattice.logp.double())).cpu()      # ids are exact below 2 ** 53
        return Lattice(both[0].long(), both[1])
    return Lattice(lattice.ids, lattice.logp.double())


def keep_best(lattice: Lattice, slots: int) -> Lattice:
    """The lattice in which the first `slots` slots offer their best token alone, its probability unchanged."""
    if slots < 1:
        return lattice
    logp = lattice.logp.clone()
    logp[:slots, 1:] = -float("inf")
    return Lattice(lattice.ids, logp)


def best_chain(lattice: Lattice, end: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """The best token of every slot, up to the first end token: the draft without a search."""
    return up_to_end(lattice.ids[:, 0].tolist(), end)


def best_path(lattice: Lattice, end: frozenset[int] = frozenset()) -> Path:
    """`best_chain` as a path, with the probability of each token in its slot; its score is the mean of their logs."""
    tokens = best_chain(lattice, end)
    logp = lattice.logp[:len(tokens), 0].tolist()
    return Path(tokens, sum(logp) / len(logp), tuple(logp))


def generated(lattice: Lattice, end: frozenset[int] = frozenset()) -> int:
    """Length of the raw draft: slots before the first one whose best token is an end token (L_gen of Eq. 9)."""
    return next((i for i, token in enumerate(lattice.ids[:, 0].tolist()) if token in end), len(lattice.ids))


def narrow(lattice: Lattice, mass: float = 0.8, cap: int = 15, end: frozenset[int] = frozenset(),
           keep_end: bool = True) -> Lattice:
    """The fewest best candidates of each slot with a total of `mass`, at most `cap`; on the host, best first (Eq. 7).

    The result is as wide as the widest slot; missing candidates have log-probability -inf. With `keep_end` the end
    tokens of a slot in the lattice stay as well. The result stops after the first slot whose best is an end token.
    """
    if not 0 < mass <= 1 or cap < 1:
        raise Refusal(f"mass must be above 0 and at most 1 and cap at least 1, got {mass} and {cap}")
    lattice = to_host(lattice)
    length = len(best_chain(lattice, end))
    ids, logp = lattice.ids[:length].numpy(), lattice.logp[:length].numpy()
    probs = np.exp(logp)
    kept = probs.cumsum(1) - probs < mass          # the mass of better candidates does not suffice
    kept[:, 0], kept[:, cap:] = True, False
    if keep_end:
        kept |= members(ids, end)
    kept &= np.isfinite(logp)
    logp = np.where(kept, logp, -np.inf)
    order = np.argsort(-logp, 1, kind="stable")[:, :kept.sum(1).max(initial=1)]
    return Lattice(*(torch.from_numpy(np.take_along_axis(each, order, 1)) for each in (ids, logp)))


def candidate_counts(lattice: Lattice) -> tuple[int, ...]:
    """Number of candidates of each slot."""
    return tuple(torch.isfinite(lattice.logp).sum(1).tolist())


def slot_statistics(lattice: Lattice) -> tuple[tuple[float, ...], ...]:
    """Of each slot the two best probabilities, and the entropy (nats) with the mass outside as one token."""
    probs = lattice.logp.exp()
    rest = (1 - probs.sum(1)).clamp(min=0)
    entropy = torch.special.entr(probs).sum(1) + torch.special.entr(rest)
    second = probs[:, 1].tolist() if probs.shape[1] > 1 else [0.0] * len(probs)
    return tuple(zip(probs[:, 0].tolist(), second, entropy.tolist(), strict=True))


def oracle(lattice: Lattice, tokens: Sequence[int]) -> tuple[int, ...]:
    """The longest prefix of `tokens` that is a path of the lattice: the bound on the accepted length of any search."""
    n = 0
    for token, ids, logp in zip(tokens, lattice.ids.tolist(), lattice.logp.tolist(), strict=False):
        if (token, True) not in zip(ids, (value > -np.inf for value in logp), strict=True):
            break
        n += 1
    return tuple(tokens[:n])


def search(lattice: Lattice, context: Sequence[int], proxy: Proxy | None = None, weight: float = 0.5, beam: int = 3,
           end: frozenset[int] = frozenset(), score: str = "mean") -> tuple[Path, ...]:
    """The `beam` best paths found from left to right, best first, each up to its first end token (Eq. 8).

    A token adds `weight` (lambda) times its slot's log-probability and 1 - weight times the proxy's, given the two
    tokens before it in path and `context`; without a proxy the slot alone counts. A path that ended stays in the beam
    and competes with longer ones by its `score`: "sum" adds up, as printed, which favours early ends; "mean" is per
    token; "accepted" is the expected number of accepted tokens if the mixed probabilities were the target's (the last
    two are ours).
    """
    if score not in SCORES or not 0 <= weight <= 1 or beam < 1:
        raise Refusal(f"beam must be at least 1, weight from 0 to 1 and score one of {', '.join(SCORES)}, "
                      f"got {beam}, {weight} and {score!r}")
    lattice = to_host(lattice)
    ids, logp = lattice.ids.numpy(), lattice.logp.numpy()
    ends, beams = members(ids, end), Beams.of(context)
    for i in range(len(ids)):
        if beams.over.all():
            break
        beams = beams.step(ids[i], candidate_gains(ids[i], logp[i], beams.last, proxy, weight), ends[i], beam, score)
    return tuple(beams.path(n, ids, logp, score) for n in range(len(beams.total)))


def candidate_gains(ids: np.ndarray, logp: np.ndarray, last: np.ndarray, proxy: Proxy | None,
                    weight: float) -> np.ndarray:
    """Score [b, m] that each of m candidates of a slot adds to each of b beams with last tokens `last [b, 2]`."""
    own = np.broadcast_to(logp, (len(last), len(ids)))
    if proxy is None:
        return own
    order = proxy.logp_batch(last, np.broadcast_to(ids, own.shape))
    return np.where(np.isfinite(own), weight * np.where(np.isfinite(own), own, 0) + (1 - weight) * order, -np.inf)


@dataclass(frozen=True)
class Beams:
    """The b paths of a beam search: all arrays are [b] or [b, ...]."""

    columns: np.ndarray                            # [b, slots so far], NOTHING after an end token
    last: np.ndarray                               # [b, 2]: the two tokens before the next slot
    total: np.ndarray                              # sum of the tokens' scores
    length: np.ndarray
    hoped: np.ndarray                              # expected number of accepted tokens
    over: np.ndarray                               # True after an end token

    @staticmethod
    def of(context: Sequence[int]) -> Beams:
        """The empty path after `context`."""
        last = (NOTHING, NOTHING, *context[-2:])[-2:]
        return Beams(np.empty((1, 0), dtype=np.int64), np.array([last]), np.zeros(1), np.zeros(1), np.zeros(1),
                     np.zeros(1, dtype=bool))

    def step(self, ids: np.ndarray, gain: np.ndarray, ends: np.ndarray, beam: int, score: str) -> Beams:
        """Extend by one slot: every open path with every candidate, every ended one unchanged; keep the best."""
        gain = np.where(self.over[:, None], -np.inf, gain)
        stay = np.where(self.over, 0.0, -np.inf)[:, None]
        total = self.total[:, None] + np.concatenate((gain, stay), 1)                # [b, m + 1], last: unchanged
        grows = np.append(np.ones(len(ids)), 0)
        length = self.length[:, None] + grows
        hoped = self.hoped[:, None] + np.exp(total) * grows
        value = np.where(np.isfinite(total), scored(total, length, hoped, score), -np.inf)
        best = np.argsort(-value, None, kind="stable")[:min(beam, int(np.isfinite(value).sum()))]
        who, column = np.divmod(best, len(ids) + 1)
        stays = column == len(ids)
        token = np.append(ids, NOTHING)[column]
        return Beams(np.concatenate((self.columns[who], np.where(stays, NOTHING, column)[:, None]), 1),
                     np.stack((self.last[who, 1], token), 1), total.flat[best], length.flat[best], hoped.flat[best],
                     stays | np.append(ends, True)[column])

    def path(self, n: int, ids: np.ndarray, logp: np.ndarray, score: str) -> Path:
        """Path n with its tokens and their log-probabilities."""
        columns = self.columns[n][self.columns[n] != NOTHING]
        slots = np.arange(len(columns))
        value = scored(self.total[n], self.length[n], self.hoped[n], score)
        return Path(tuple(ids[slots, columns].tolist()), float(value), tuple(logp[slots, columns].tolist()))


def scored(total, length, hoped, score: str):
    """The score of paths, from the three sums in `Beams`."""
    return {"sum": total, "mean": total / np.maximum(length, 1), "accepted": hoped}[score]


def members(ids: np.ndarray, end: frozenset[int]) -> np.ndarray:
    """Mask of the end tokens among `ids`."""
    return np.isin(ids, list(end)) if end else np.zeros(ids.shape, dtype=bool)
