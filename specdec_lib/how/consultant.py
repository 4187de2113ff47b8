"""Consultant Decoding: a draft is accepted while the target finds the running text likely enough, whatever drafted it.

Source: arXiv 2506.02391. With n_i = -ln p(x_i), the running surprise r_i = beta r_(i-1) + (1 - beta) n_i is compared
with eps: the first node with r_i > eps is rejected, with all below it, and replaced by a token drawn from p; a draft
that passes whole is followed by a bonus token of p. At beta = 0 this is p(x) >= exp(-eps). Never reads `q`. Not
lossless: a token x drawn from q, A the set of passing tokens, is emitted with probability q(x) [x in A] + (1 - q(A))
p(x).

The paper is known to us by its abstract and at second hand. What that does not say is our reading, each a parameter: r
begins as the surprise of the first drafted token, is carried from round to round (folded from their log-probabilities,
nothing is stored beside the session), and becomes the new token's own after a rejection; a bonus token counts like a
drafted one; end and control tokens pass only as the target's own choice. In a tree every path has its own r; the
longest that passes is kept, of two the likelier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, reduce

from specdec_lib.cards import Card, Kit
from specdec_lib.lazy import torch
from specdec_lib.running_fold import RunningFold
from specdec_lib.scores import Scores
from specdec_lib.trees import longest_path, offered, passing_paths
from specdec_lib.types import ROOT, Draft, RandomNumbers, Refusal, Round, Session, Verdict

KINDS = ("end", "control", "digit", "fence")       # fields of Facts


@dataclass(frozen=True)
class Consultant:
    """Keeps the longest path on which the running surprise (nats) never passes `eps`."""

    eps: float = 2.0                               # about the converged training loss of a language model
    beta: float = 0.2                              # weight of the past
    reset: bool = False                            # True: r begins anew with the first drafted token of each round
    bonus: bool = True                             # whether r counts the bonus token
    temperature: float = 1.0                       # of the surprise, before any top-k or top-p
    never: frozenset[int] = frozenset()            # tokens that pass only as the target's own choice
    spare_end: bool = True                         # the same for the session's end tokens
    fold: RunningFold = field(default_factory=RunningFold, init=False, repr=False, compare=False)

    def __post_init__(self):
        if not self.eps >= 0:
            raise Refusal(f"eps is a surprise in nats, 0 or more, got {self.eps}")
        if not 0 <= self.beta < 1:
            raise Refusal(f"beta is the weight of the past, at least 0 and below 1, got {self.beta}")
        if not self.temperature > 0:
            raise Refusal(f"the temperature of the surprise must be above 0, got {self.temperature}")
        if self.temperature != 1 and not self.reset:
            raise Refusal(f"rounds remember log-probabilities at temperature 1, so at {self.temperature} the running "
                          "surprise cannot be carried: set reset=True or temperature=1")

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Verdict:
        surprise = surprises(draft, scores, self.temperature)
        own = cache(lambda parent: target_choice(session, draft, scores, dice, parent))  # one draw for each position
        spared = self.never | (session.end if self.spare_end else frozenset())

        def test(r: float | None, node: int) -> float | None:
            r = running_surprise(r, surprise[node], self.beta)
            token = draft.tokens[node]
            return r if r <= self.eps and (token not in spared or token == own(draft.parents[node])) else None

        start = None if self.reset else self.fold(self.after, session.rounds, None)
        path = longest_path(draft, scores, [path for path, _ in passing_paths(draft, start, test)])
        return Verdict.of(draft, path, own(path[-1] if path else ROOT))

    def after(self, r: float | None, round: Round) -> float | None:
        """The running surprise at the end of one more round."""
        return surprise_after(r, round, self.beta, self.bonus)


def running_surprise(r: float | None, n: float, beta: float) -> float:
    """The running surprise after a token of surprise `n`; None before the first."""
    return n if r is None or not beta else beta * r + (1 - beta) * n


def carried_surprise(rounds: Iterable[Round], beta: float, bonus: bool = True) -> float | None:
    """The running surprise at the end of these rounds, at temperature 1; None where nothing has counted yet."""
    return reduce(lambda r, round: surprise_after(r, round, beta, bonus), rounds, None)


def surprise_after(r: float | None, round: Round, beta: float, bonus: bool = True) -> float | None:
    """The running surprise at the end of a round that began with `r`."""
    kept = len(round.verdict.path)
    for logprob in round.logprobs[:kept]:
        r = running_surprise(r, -logprob, beta)
    for logprob in round.logprobs[kept:]:          # the target's own token, unless the loop cut it
        if offered(round) > kept:
            r = -logprob
        elif bonus:
            r = running_surprise(r, -logprob, beta)
    return r


def surprises(draft: Draft, scores: Scores, temperature: float = 1.0) -> tuple[float, ...]:
    """-ln p of every node in the softmax of its row at this temperature."""
    if not len(draft):
        return ()
    rows = tuple(sorted({parent + 1 for parent in draft.parents}))
    if temperature == 1:                           # the same numbers that rounds keep
        lse = scores.row_stats(rows).lse
    else:
        logits = scores.logits[list(rows)]
        lse = (logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature).logsumexp(-1).tolist()
    whole = dict(zip(rows, lse, strict=True))
    return tuple(whole[parent + 1] - scores.logit(parent + 1, token) / temperature
                 for token, parent in zip(draft.tokens, draft.parents, strict=True))


def target_choice(session: Session, draft: Draft, scores: Scores, dice: RandomNumbers, parent: int) -> int:
    """The target's own token after `parent`, by random numbers of the position; later nodes of a depth have others."""
    depth = 0 if parent == ROOT else draft.depths[parent]
    here = dice.at(len(session.tokens) + depth)
    if depth and draft.depths.index(depth) != parent:
        here = here.fork("beside", parent)
    return here.choose(scores.distribution(parent + 1, session.sampling))


def make(kit: Kit, eps: float = 2.0, beta: float = 0.2, reset: bool = False, bonus: bool = True,
         temperature: float | None = 1.0, spare: tuple[str, ...] = KINDS[:2]) -> Consultant:
    """`spare` names kinds of tokens that pass only as the target's own choice; `()` is the bare rule.

    One wrong end token costs the rest of the answer. Digits and fences may be spared too, as `relaxed` does: a wrong
    number may well be probable.

    The surprise is taken at temperature 1, which rounds remember and eps was set for. `temperature=None` takes it at
    the session's own (1 for a greedy one, which has no uncertainty), which needs reset=True unless it is 1.
    """
    if isinstance(spare, str) or set(spare) - set(KINDS):
        raise Refusal(f"spare names kinds of tokens, {', '.join(KINDS)}, got {spare!r}")
    own = 1.0 if kit.sampling is None or kit.sampling.greedy else float(kit.sampling.temperature)
    never = frozenset().union(*(getattr(kit.facts, name) for name in spare))
    return Consultant(eps, beta, reset, bonus, own if temperature is None else temperature, never, "end" in spare)


CARD = Card("consultant", idea="accept a draft while the target finds the running text likely enough",
            source="Consultant Decoding, arXiv 2506.02391; what is carried and the guards are our reading", make=make,
            lossless=False, notebook="34_how_consultant")
