"""The words of the workbook: every value that crosses a seam, frozen, and the protocols of the parts.

Glossary, used everywhere: `p` is the target's distribution, `q` the draft's. `alpha` = probability that a drafted
token is accepted, `tau` = tokens per target forward, `k` = depth in prose (`depth` in code), `c` = cost of a draft step
in target forwards. A node is an index into a draft; row 0 of scores follows the context, row i + 1 follows node i.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from specdec_lib.scores import NO_DICE as NO_DICE
from specdec_lib.scores import Distribution, RandomNumbers, RowStats, Scores, TokenStats

if TYPE_CHECKING:
    from torch import Tensor

ROOT = -1                                          # the parent of a node that follows the context directly
QUERY = "query"                                    # note of a budget: tokens of suffix that retrieval must match
FORWARDS = "forwards"                              # note of a budget: forwards that a drafting model may make


class Refusal(ValueError):
    """Bad input, said in one sentence to the person who gave it (exit code 2 on the command line)."""


Trail = tuple[TokenStats, ...]                     # the statistics along one path of a draft, in order
Stop = Callable[[Trail], bool]                     # called after each drafted token; True stops drafting


@dataclass(frozen=True)
class Budget:
    """How far to draft this round. Plain data; depth 0 decodes plainly. Refusal for sizes that no draft can have."""

    depth: int = 0                                 # longest path
    width: int = 1                                 # children per node at most; 1 = a chain
    nodes: int | None = None                       # None = depth x width
    stop: Stop | None = None                       # a small frozen value with a pure call
    sources: tuple[tuple[str, Budget], ...] = ()   # drafters in the order they are asked, each with its own budget
    notes: Mapping[str, Any] = field(default_factory=dict, hash=False)         # small plain data, read again next round

    def __post_init__(self):
        if self.depth < 0 or not 1 <= self.width <= 1000 or (self.nodes is not None and self.nodes < 0):
            sizes = f"{self.depth}, {self.width} and {self.nodes}"         # a wider tree would only fill the memory
            raise Refusal(f"a budget needs depth >= 0, width from 1 to 1,000 and nodes >= 0, got {sizes}")

    @staticmethod
    def of(source: str, depth: int, width: int = 1, nodes: int | None = None) -> Budget:
        """A budget for the drafter `source` of a switch; "" leaves the choice to the switch."""
        own = Budget(depth, width, nodes)
        return replace(own, sources=((source, own),)) if source else own

    @property
    def source(self) -> str:
        """The drafter that is asked first; "" = the switch's choice."""
        return self.sources[0][0] if self.sources else ""

    @property
    def size(self) -> int:
        """Nodes at most."""
        return min(self.depth * self.width, self.depth * self.width if self.nodes is None else self.nodes)

    def then(self, other: Budget) -> Budget:
        """This budget, and `other` with its sources where those of this one draft nothing."""
        return replace(self, sources=self.sources + other.sources)

    def each(self, change: Callable[[Budget], Budget]) -> Budget:
        """The budget after this change, which is made to every source's own budget as well."""
        return replace(change(self), sources=tuple((name, change(own)) for name, own in self.sources))

    def within(self, session: Session) -> Budget:
        """The same budget without nodes that could never be emitted: one token is the verdict's own."""
        most = max(0, session.remaining - 1)
        fits = all(own.depth <= most for own in (self, *(own for _, own in self.sources)))
        return self if fits else self.each(lambda own: replace(own, depth=min(own.depth, most)))


@dataclass(frozen=True)
class Draft:
    """A flat token tree: siblings differ, a parent precedes its children, the context is not part of it.

    `q[i]` is the distribution that node i was drawn from *given nothing but its path and its earlier siblings*; None is
    a deterministic proposal, and an empty `q` means that every node is one. `stats`, `source` and `confidence` have one
    entry per node or are empty.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    q: tuple[Distribution | None, ...] = ()
    stats: tuple[TokenStats, ...] = ()
    source: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()             # the drafter's own probability that the node is accepted
    notes: Mapping[str, Any] = field(default_factory=dict)   # small plain data to record with the round

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of every node; the first tokens after the context have depth 1."""
        out: list[int] = []
        for parent in self.parents:
            out.append(1 if parent == ROOT else out[parent] + 1)
        return tuple(out)

    @property
    def depth(self) -> int:
        return max(self.depths, default=0)

    @cached_property
    def children(self) -> Mapping[int, tuple[int, ...]]:
        """Children of every node that has any, in order; key ROOT for the first level."""
        out: dict[int, tuple[int, ...]] = {}
        for node, parent in enumerate(self.parents):
            out[parent] = out.get(parent, ()) + (node,)
        return out

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from the first level down to `node`; empty for ROOT."""
        out: list[int] = []
        while node != ROOT:
            out.append(node)
            node = self.parents[node]
        return tuple(reversed(out))

    def distribution(self, node: int) -> Distribution | None:
        return self.q[node] if self.q else None

    def trail(self, node: int) -> Trail:
        """The token statistics along the path to `node`; empty where the drafter recorded none."""
        return tuple(self.stats[i] for i in self.path(node)) if self.stats else ()

    def keep(self, nodes: tuple[int, ...]) -> Draft:
        """The draft of these nodes alone, renumbered; a kept node's parent must be kept and precede it."""
        place = {ROOT: ROOT} | {old: new for new, old in enumerate(nodes)}
        parts: tuple[Any, ...] = self.tokens, self.q, self.stats, self.source, self.confidence
        tokens, q, stats, source, confidence = (tuple(values[i] for i in nodes) if values else () for values in parts)
        return Draft(tokens, tuple(place[self.parents[i]] for i in nodes), q, stats, source, confidence, self.notes)

    def bare(self) -> Draft:
        """The same without its distributions, as rounds and recordings keep it."""
        return replace(self, q=()) if self.q else self


def up_to_end(tokens: Sequence[int], end: Collection[int]) -> tuple[int, ...]:
    """The tokens up to and including the first end token: nothing after it can be emitted."""
    stop = next((i for i, token in enumerate(tokens, 1) if token in end), len(tokens))
    return tuple(tokens[:stop])


@dataclass(frozen=True)
class Verdict:
    """Accepted nodes from root to leaf, and the emitted tokens: those of the path, then a correction or bonus token."""

    path: tuple[int, ...]
    tokens: tuple[int, ...]

    @staticmethod
    def of(draft: Draft, path: tuple[int, ...], extra: int) -> Verdict:
        return Verdict(tuple(path), tuple(draft.tokens[i] for i in path) + (extra,))

    def until(self, session: Session) -> Verdict:
        """The verdict cut after the first end token, and at the number of tokens that may still be emitted."""
        stop = min(len(up_to_end(self.tokens, session.end)), session.remaining)
        return self if stop == len(self.tokens) else Verdict(self.path[:stop], self.tokens[:stop])


class Seconds(NamedTuple):
    """Seconds of one round, by part; `how` holds the loop's own bookkeeping as well."""

    when: float = 0.0
    what: float = 0.0
    target: float = 0.0
    how: float = 0.0
    wall: float | None = None                      # of the whole round where parts overlap; None: one after another

    @property
    def whole(self) -> float:
        """Wall-clock seconds of the round: what rates are computed from."""
        return self.when + self.what + self.target + self.how if self.wall is None else self.wall


class DraftedAhead(NamedTuple):
    """What a schedule drafted beside this round's verification, in tokens."""

    tokens: int                                    # drafted while the target verified, in all branches
    branches: int                                  # of them first tokens: alternatives for one position
    discarded: int                                 # submitted or drafted ahead, and useless after this verdict
    made: int | None = None                        # drafted in this round's seconds, before the forward as well
    scored: int | None = None                      # rows of the forward; None: one more than the draft has nodes
    asked: Budget | None = None                    # of the draft made beside; the round's own is of the tested one
    kept: int | None = None                        # drafted tokens that this verdict emitted; None: all it accepted
    levels: int | None = None                      # of what was made: the forwards of a drafter that drafts by level


@dataclass(frozen=True)
class Round:
    """One round of the loop, without tensors of size V: what recordings, traces and reports read."""

    budget: Budget
    draft: Draft                                   # without its distributions
    row_stats: RowStats
    verdict: Verdict                               # as the loop cut it
    logprobs: tuple[float, ...]                    # log p of each emitted token, raw softmax at temperature 1
    seconds: Seconds = Seconds()
    ahead: DraftedAhead | None = None              # of a schedule that drafts and verifies at the same time


@dataclass(frozen=True)
class Session:
    """The state of one decode: immutable, small, and the first argument of every part."""

    tokens: tuple[int, ...]                        # prompt and everything emitted
    prompt: int                                    # how many of them are the prompt
    remaining: int                                 # tokens that may still be emitted
    end: frozenset[int] = frozenset()              # end tokens
    sampling: Any = None                           # None is greedy
    id: str = ""
    rounds: tuple[Round, ...] = ()
    prefill: float = 0.0                           # seconds
    source: tuple[int, ...] = ()                   # what an encoder-decoder's encoder reads; empty for a text model

    @property
    def output(self) -> tuple[int, ...]:
        return self.tokens[self.prompt:]

    @property
    def done(self) -> bool:
        return self.remaining <= 0 or (len(self.tokens) > self.prompt and self.tokens[-1] in self.end)

    def after(self, round: Round) -> Session:
        return replace(self, tokens=self.tokens + round.verdict.tokens, rounds=self.rounds + (round,),
                       remaining=self.remaining - len(round.verdict.tokens))


@dataclass(frozen=True)
class Lattice:
    """Candidates per position: `ids [n, m]`, log-probabilities `logp [n, m]`, best first."""

    ids: Tensor
    logp: Tensor


class LM(Protocol):
    """A language model whose cache aligns itself to whatever tokens it is given next."""

    @property
    def context(self) -> int | None:
        """Tokens the model can hold; None where nothing limits them."""

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores: ...
    def prefill(self, tokens: tuple[int, ...]) -> None: ...
    def fresh(self) -> LM: ...


class SourceLM(LM, Protocol):
    """An encoder-decoder: bound to a source, it is a language model of what follows `start`."""

    @property
    def start(self) -> tuple[int, ...]: ...
    def bound(self, source: Sequence[int], /) -> LM: ...


class TappedLM(LM, Protocol):
    """A language model whose weights and hidden states a drafter reads; others have none or raise Refusal."""

    @property
    def vocab(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def weights(self) -> Any: ...                  # models.llama.weights.LlamaWeights
    def tap(self, layers: tuple[int, ...], /) -> None: ...
    def features(self, tokens: tuple[int, ...]) -> Tensor: ...
    def exit(self, layer: int, head: Any = None) -> LM: ...


When = Callable[[Session, RandomNumbers], Budget]
What = Callable[[Session, Budget, RandomNumbers], Draft]
How = Callable[[Session, Draft, Scores, RandomNumbers], Verdict]


class SharingWhat(Protocol):
    """A drafter that can leave its forwards to a batch: `asking` yields what it asks for and is sent the answer."""
    def asking(self, session: Session, budget: Budget, dice: RandomNumbers) -> Generator[Any, Any, Draft]: ...


Schedule = Callable[[Session, LM, "Method", RandomNumbers], Iterator[Session]]


class Method(NamedTuple):
    """An assembled method: one part from each room, and its own schedule where rounds are not one after another."""

    when: When
    what: What
    how: How
    schedule: Schedule | None = None               # None = loop.rounds, which has this signature
