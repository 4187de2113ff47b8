"""Losslessness by enumeration: the output distribution of every combination is compared with the target's own.

The table world is in float64 with three tokens. `what` x `how` in full, every *when* with every `what` under
`rejection`. Known wrong rules must be caught by the same enumeration.
"""

import inspect
import itertools
from dataclasses import replace
from functools import cache

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.schedules import overlap, workers
from specdec_lib.scores import Categorical, Scores
from specdec_lib.types import ROOT, Budget, Draft, Method, Verdict
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.fixed import Fixed
from tests.worlds import PROMPT, WARM, kit, network_kit, run, true_law

ROOMS = catalog.parts()
ABLE = {room: [name for name, card in cards.items() if not catalog.missing(card, kit())]
        for room, cards in ROOMS.items()}
LOSSLESS_HOW = [name for name in ABLE["how"] if ROOMS["how"][name].lossless]


def output_distribution(when, what: str, how: str, tokens: int = 3):
    def once(dice):
        world = kit()
        method = Method(when(world), world.part(what), world.part(how))
        return run(method, dice, tokens=tokens)
    return every_outcome(once)


@pytest.mark.parametrize(("what", "how"), list(itertools.product(ABLE["what"], LOSSLESS_HOW)))
def test_every_drafter_under_every_rule_keeps_the_target_distribution(what, how):
    dist = output_distribution(lambda world: Fixed(2, 2, 3), what, how)
    assert distance(dist, true_law()) < 1e-12


def policy(world, name: str):
    """A *when* of this world; one that chooses between two drafters gets the two of this world's switch."""
    known = inspect.signature(ROOMS["when"][name].make).parameters
    here = {"retrieve": "suffix-automaton", "model": "token-recycling"}
    return world.part(name, **{role: drafter for role, drafter in here.items() if role in known})


@pytest.mark.parametrize(("when", "what"), list(itertools.product(ABLE["when"], ABLE["what"])))
def test_every_policy_with_every_drafter_keeps_the_target_distribution(when, what):
    dist = output_distribution(lambda world: policy(world, when), what, "rejection")
    assert distance(dist, true_law()) < 1e-12


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch):
    """Lengths that follow measured times would differ between the runs of one enumeration."""
    for module in (overlap, workers):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.0)


METHODS = [name for name, card in catalog.methods().items() if card.lossless and not catalog.missing(card, kit())]


@pytest.mark.parametrize("name", METHODS)
def test_every_assembled_method_keeps_the_target_distribution(name):
    dist = every_outcome(lambda dice: run(catalog.build(name, kit()), dice))
    assert distance(dist, true_law()) < 1e-12


@pytest.mark.parametrize("what", ABLE["what"])
def test_match_emits_exactly_plain_decodings_tokens_when_sampling(what):
    for seed in range(20):
        plain = run(catalog.build("ar", kit()), Dice(seed), tokens=12)
        world = kit()
        method = Method(Fixed(2, 2, 3), world.part(what), world.part("match"))
        assert run(method, Dice(seed), tokens=12) == plain


# --- parts that need a network: a random transformer of two layers and three tokens, in float64 ----------------------

WORLD = network_kit()
NETWORK_METHODS = [name for name, card in catalog.methods().items()
                   if card.lossless and not catalog.missing(card, WORLD)]
NETWORK_WHATS = [name for name, card in ROOMS["what"].items()
                 if name not in ABLE["what"] and not catalog.missing(card, WORLD)]
NETWORK_WHENS = [name for name, card in ROOMS["when"].items()
                 if name not in ABLE["when"] and not catalog.missing(card, WORLD)]


def fresh_kit(sampling=WARM):
    return replace(WORLD, target=WORLD.target.fresh(), sampling=sampling, indexes={}, memory={})


def network_distribution(make, tokens: int, prompt=PROMPT) -> dict:
    def once(dice):
        fresh = fresh_kit()
        return run(make(fresh), dice, tokens=tokens, target=fresh.target, prompt=prompt)
    return every_outcome(once)


@cache
def plain_distribution(tokens: int, prompt=PROMPT) -> dict:
    """What plain decoding on the network gives, enumerated once for all that are compared with it."""
    return network_distribution(lambda kit: catalog.build("ar", kit), tokens, prompt)


@pytest.mark.parametrize("name", NETWORK_METHODS)
def test_on_a_network_every_method_keeps_plain_decodings_distribution(name):
    tokens = 3 if set(catalog.methods()[name].parts) & set(NETWORK_WHATS) else 2
    dist = network_distribution(lambda kit: catalog.build(name, kit), tokens)
    assert distance(dist, plain_distribution(tokens)) < 1e-9


@pytest.mark.parametrize(("what", "how"), list(itertools.product(NETWORK_WHATS, LOSSLESS_HOW)))
@pytest.mark.parametrize("prompt", [PROMPT, (1,)], ids=["prompt", "one token"])
def test_a_drafter_that_needs_a_network_keeps_the_distribution_under_every_rule(what, how, prompt):
    dist = network_distribution(lambda kit: Method(Fixed(2, 2, 3), kit.part(what), kit.part(how)), 3, prompt)
    assert distance(dist, plain_distribution(3, prompt)) < 1e-9


@pytest.mark.parametrize(("when", "what"), list(itertools.product(NETWORK_WHENS, ["draft-model", *NETWORK_WHATS])))
def test_a_policy_that_needs_a_network_keeps_the_distribution_with_every_such_drafter(when, what):
    dist = network_distribution(lambda kit: Method(kit.part(when), kit.part(what), kit.part("rejection")), 3)
    assert distance(dist, plain_distribution(3)) < 1e-9


@pytest.mark.parametrize("what", NETWORK_WHATS)
@pytest.mark.parametrize("sampling", [WARM, None], ids=["sampling", "greedy"])
def test_on_a_network_match_emits_exactly_plain_decodings_tokens(what, sampling):
    for seed in range(5):
        plain, drafted = fresh_kit(sampling), fresh_kit(sampling)
        method = Method(Fixed(3), drafted.part(what), drafted.part("match"))
        want = run(catalog.build("ar", plain), Dice(seed), sampling, 12, plain.target, (seed % 3, 1))
        assert run(method, Dice(seed), sampling, 12, drafted.target, (seed % 3, 1)) == want


# --- rules that must be caught --------------------------------------------------------------------------------------
# The draft is overconfident where the target is not: p(first) = (.2, .4, .4), q = (.7, .2, .1).

P = Table({(): (.2, .4, .4), (0,): (.2, .5, .3), (1,): (.1, .3, .6)})
Q = Table({(): (.7, .2, .1), (0,): (.7, .1, .2), (1,): (.3, .6, .1)})
START = (2,)


def bias(what, how) -> float:
    """Total variation between the output of this drafter and rule and the target's distribution, over two tokens."""
    method = Method(lambda session, dice: Budget(2, 2), what, how)
    dist = every_outcome(lambda dice: run(method, dice, tokens=3, target=P, prompt=START))
    return distance(dist, true_law(P, START, tokens=3))


def q_at(*tokens) -> Categorical:
    return Categorical(torch.arange(3), Q.logits(tuple(tokens)).exp())


def chain(first: int, second: int, *dists) -> Draft:
    return Draft((first, second), (ROOT, 0), tuple(dists))


def second_slot_first(session, budget, dice):
    """Slot 2 is drawn from its marginal first; slot 1 is then drawn given slot 2."""
    last = session.tokens[-1]
    joint = q_at(last).probs[:, None] * torch.stack([q_at(a).probs for a in range(3)])          # [slot 1, slot 2]
    later = Categorical(torch.arange(3), joint.sum(0))
    b = dice.choose(later)
    earlier = Categorical(torch.arange(3), joint[:, b] / joint[:, b].sum())
    a = dice.choose(earlier)
    return chain(a, b, earlier, later)


def committed_as_if_drawn(session, budget, dice):
    """Slot 1 commits its best token, and is tested as if drawn; slot 2 is drawn given slot 1."""
    first = q_at(session.tokens[-1])
    a = int(first.probs.argmax())
    second = q_at(a)
    return chain(a, dice.choose(second), first, second)


def duplicates_merged(session, budget, dice):
    """Two draws for the first level; two equal tokens become one node with the distribution of one draw."""
    q = q_at(session.tokens[-1])
    a, b = dice.choose(q), dice.choose(q)
    return Draft((a,), (ROOT,), (q,)) if a == b else Draft((a, b), (ROOT, ROOT), (q, q))


def dropped_by_its_value(session, budget, dice):
    """A token of low probability is drawn and then not submitted."""
    q = q_at(session.tokens[-1])
    token = dice.choose(q)
    return Draft() if q.probability(token) < .25 else Draft((token,), (ROOT,), (q,))


def dropping(name: str, **values):
    """A drafter under this policy that drops the token at which the stop rule fired."""
    def drop(session, budget, dice):
        stop = kit().part(name, **values)(session, dice).stop
        draft = DraftModel(Q)(session, replace(budget, stop=stop), dice)
        fired = bool(len(draft)) and stop(draft.stats)
        return draft.keep(tuple(range(len(draft) - 1))) if fired else draft
    drop.__name__ = f"dropping under {name}"
    return drop


def chosen_before_the_ratio_test(session, draft, scores, dice):
    """Of two drawn chains keep the one more probable under the target, then test it as if drawn alone."""
    if not len(draft):
        return Rejection()(session, draft, scores, dice)
    p = scores.distribution(0, session.sampling)
    best = max(draft.children[ROOT], key=lambda node: p.probability(draft.tokens[node]))
    verdict = Rejection()(session, draft.keep((best,)), Scores(scores.logits[[0, best + 1]]), dice)
    return Verdict((best,) if verdict.path else (), verdict.tokens)


def two_drawn(session, budget, dice):
    q = q_at(session.tokens[-1])
    return Draft(tuple(dice.choose(q) for _ in range(2)), (ROOT, ROOT), (q, q))


@pytest.mark.parametrize(("what", "how"), [
    (second_slot_first, Rejection()), (committed_as_if_drawn, Rejection()), (duplicates_merged, Rejection()),
    (dropped_by_its_value, Rejection()), (dropping("confidence"), Rejection()),
    (two_drawn, chosen_before_the_ratio_test)],
    ids=lambda part: getattr(part, "__name__", ""))
def test_a_broken_promise_of_q_is_caught(what, how):
    assert bias(what, how) > 0.01


@pytest.mark.parametrize("what", [second_slot_first, committed_as_if_drawn, duplicates_merged,
                                  dropped_by_its_value, two_drawn])
def test_the_same_nodes_as_deterministic_are_lossless(what):
    def deterministic(session, budget, dice):
        draft = what(session, budget, dice)
        keep = tuple(i for i in range(len(draft)) if draft.tokens[i] not in
                     [draft.tokens[j] for j in range(i) if draft.parents[j] == draft.parents[i]])
        return draft.keep(keep).bare()

    assert bias(deterministic, Rejection()) < 1e-12


@pytest.mark.parametrize(("what", "first"), [(second_slot_first, 1), (committed_as_if_drawn, 0)])
def test_with_the_first_filled_slot_deterministic_the_other_may_keep_its_distribution(what, first):
    def repaired(session, budget, dice):
        draft = what(session, budget, dice)
        return replace(draft, q=tuple(None if node == first else q for node, q in enumerate(draft.q)))

    assert bias(repaired, Rejection()) < 1e-12


@pytest.mark.parametrize(("name", "values"), [
    ("svip", {"h": .35}), ("adaedl", {"start": .58}), ("margin", {"h": .4}), ("svip-difference", {"h": .02})])
def test_dropping_by_a_rule_on_the_distribution_alone_is_lossless(name, values):
    drop, session = dropping(name, **values), begin(START, 9, sampling=WARM)
    assert len({len(drop(session, Budget(2, 2), Dice(seed))) for seed in range(20)}) > 1, "it fires at times"
    assert bias(drop, Rejection()) < 1e-12


def test_siblings_drawn_without_replacement_keep_the_distribution():
    def without_replacement(session, budget, dice):
        q = q_at(session.tokens[-1])
        first = dice.choose(q)
        left = q.probs.clone()
        left[first] = 0
        rest = Categorical(q.ids, left / left.sum())
        return Draft((first, dice.choose(rest)), (ROOT, ROOT), (q, rest))

    assert bias(without_replacement, Rejection()) < 1e-12


@pytest.mark.parametrize(("how", "overlap"), [(Rejection(), torch.minimum), (Match(), torch.mul)])
def test_the_acceptance_probability_is_the_analytic_overlap(how, overlap):
    def accepted(dice):
        q = q_at(2)
        draft = Draft((dice.choose(q),), (ROOT,), (q,))
        session = begin(START, 3, sampling=WARM)
        return len(how(session, draft, P(START, draft), dice).path)

    p, q = P.logits(START).exp(), q_at(2).probs
    assert every_outcome(accepted)[1] == pytest.approx(float(overlap(p, q).sum()), abs=1e-12)
