"""Typical acceptance on rows made by hand, the output distribution, and match at temperature 0."""

import itertools
import math

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.acceptance import Typical
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.typical import TypicalAcceptance, make, truncated
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.sampling import Sampling
from specdec_lib.scores import Categorical, Scores
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, ROOT, Draft, Method, Refusal, Verdict
from specdec_lib.when.fixed import Fixed
from tests.worlds import PROMPT, TARGET, WARM, kit, run, true_law

# H = 0.80 nats and 0.3 exp(-H) = 0.135, so eps = 0.09 is the lower bound; of FLAT H = 1.85 and 0.3 exp(-H) = 0.047.
STEEP = (.70, .20, .0901, .0099)
FLAT = (.24, .21, .18, .14, .10, .08, .05)
COLD = Sampling(temperature=0.7)


def scores(*rows) -> Scores:
    """Probabilities by row; row 0 follows the context, row i + 1 node i. Raw logits may have any offset."""
    wide = max(map(len, rows))
    return Scores(torch.tensor([(*row, *[0.0] * (wide - len(row))) for row in rows], dtype=torch.float64).log() + 2)


def judge(draft, *rows, how=None, sampling=WARM, dice=None) -> Verdict:
    session = begin((9,), 20, sampling=sampling)
    return (how or TypicalAcceptance())(session, draft, scores(*rows), dice or Dice(0))


def passing(row, sampling=WARM, **bounds) -> list[int]:
    """Tokens of this row that a chain of one may hold."""
    how = TypicalAcceptance(Typical(**bounds))
    return [token for token in range(len(row))
            if judge(deterministic_chain((token,)), row, row, how=how, sampling=sampling).path]


# --- the rule -------------------------------------------------------------------------------------------------------

def test_where_the_target_is_sure_eps_is_the_bound():
    assert 0.3 * math.exp(-entropy(STEEP)) > 0.09
    assert passing(STEEP) == [0, 1, 2]
    assert passing(STEEP, eps=.0902) == [0, 1]
    assert passing(STEEP, eps=.005) == [0, 1, 2, 3]


def test_where_the_target_hesitates_delta_is_the_bound():
    assert .05 > 0.3 * math.exp(-entropy(FLAT)) > .045
    assert passing(FLAT) == [0, 1, 2, 3, 4, 5, 6]
    assert passing(FLAT, delta=.4) == [0, 1, 2, 3, 4, 5]
    assert passing(FLAT, delta=.4, eps=.04) == [0, 1, 2, 3, 4, 5, 6]


def test_the_comparison_is_strict():
    even = (.25,) * 4
    assert passing(even, eps=.25, delta=1.0) == []
    assert passing(even, eps=.2499, delta=1.0) == [0, 1, 2, 3]


def test_the_distribution_looked_at_is_the_one_that_is_sampled_from():
    """At 0.7 the third of STEEP has .0901^(1/.7) of the sum, .044; a top-k of 2 forbids it at any temperature."""
    sharp = torch.tensor(STEEP, dtype=torch.float64) ** (1 / .7)
    assert float(sharp[2] / sharp.sum()) == pytest.approx(.0437, abs=1e-4)
    assert passing(STEEP, COLD) == [0, 1]
    assert passing(STEEP, Sampling(temperature=3.0)) == [0, 1, 2, 3]
    assert passing(STEEP, Sampling(temperature=3.0, top_k=2)) == [0, 1]
    assert passing(STEEP, Sampling(temperature=1.0, top_p=0.85)) == [0, 1]


def entropy(row) -> float:
    return -sum(p * math.log(p) for p in row)


# --- paths ----------------------------------------------------------------------------------------------------------

def test_the_first_token_that_fails_ends_the_chain():
    assert judge(deterministic_chain((1, 0, 3, 0)), *[STEEP] * 5).path == (0, 1)
    assert judge(deterministic_chain((3, 0, 0)), *[STEEP] * 4).path == ()
    assert judge(deterministic_chain((2, 1, 2)), *[STEEP] * 4).path == (0, 1, 2)


def test_in_a_tree_the_longest_path_is_kept_whatever_its_probability():
    draft = Draft((0, 2, 3, 2), (ROOT, ROOT, 0, 1))           # 0-3 ends after 0; 2-2 passes
    assert judge(draft, *[STEEP] * 5).path == (1, 3)


def test_of_two_longest_the_likelier_in_the_distribution_sampled_from_is_kept_and_then_the_first():
    even = Draft((1, 0, 0, 0), (ROOT, ROOT, 0, 1))
    assert judge(even, (.5, .5), *[STEEP] * 4).path == (0, 2)
    assert judge(even, (.5, .5), STEEP, (.8, .2), STEEP, STEEP).path == (1, 3)      # .5 x .7 against .5 x .8
    draft, rows = Draft((1, 0, 0, 1), (ROOT, ROOT, 0, 1)), (STEEP, (.3, .7), STEEP, STEEP, STEEP)
    assert judge(draft, *rows).path == (1, 3)                 # .2 x .3 against .7 x .2
    assert judge(draft, *rows, sampling=Sampling(temperature=4.0)).path == (0, 2)   # .27 x .45 against .37 x .27


def test_what_follows_is_drawn_where_the_path_ends_by_the_random_numbers_of_that_position():
    for seed in range(20):
        verdict = judge(deterministic_chain((1, 3)), STEEP, FLAT[::-1][:4], STEEP, dice=Dice(seed))
        at = 2 if verdict.path == (0, 1) else 1
        dist = scores(STEEP, FLAT[::-1][:4], STEEP).distribution(at, WARM)
        assert verdict.tokens[-1] == Dice(seed).at(1 + at).choose(dist)
    seen = {judge(deterministic_chain((3,)), STEEP, STEEP, dice=Dice(seed)).tokens for seed in range(40)}
    assert seen >= {(0,), (1,)}


def test_medusas_two_ways_to_go_on():
    def after(extra, seed):
        return judge(Draft(), FLAT, how=make(kit(), eps=.17, delta=1.0, extra=extra), dice=Dice(seed)).tokens[0]

    seen = {extra: {after(extra, seed) for seed in range(100)} for extra in ("draw", "best", "typical")}
    assert seen == {"draw": set(range(7)), "best": {0}, "typical": {0, 1, 2}}
    dist = truncated(Categorical(torch.arange(7), torch.tensor(FLAT, dtype=torch.float64)), Typical(.17, 1.0))
    assert dist.probs.tolist() == pytest.approx([24 / 63, 21 / 63, 18 / 63])
    assert truncated(Categorical(torch.arange(5, 9), torch.tensor([.25] * 4)), Typical(1.0, 1.0)).only == 5


# --- temperature 0 --------------------------------------------------------------------------------------------------

def trees(nodes: int, vocab: int = 3):
    """Every draft tree of this size over the vocabulary: siblings differ."""
    for parents in itertools.product(*(range(ROOT, node) for node in range(nodes))):
        for tokens in itertools.product(range(vocab), repeat=nodes):
            if len(set(zip(parents, tokens, strict=True))) == nodes:
                yield Draft(tokens, parents)


@pytest.mark.parametrize("how", [TypicalAcceptance(), TypicalAcceptance(Typical(0.0, 0.0), "best"),
                                 TypicalAcceptance(Typical(1.0, 0.9), "typical")], ids=["medusa", "loose", "strict"])
@pytest.mark.parametrize("sampling", [None, Sampling(0.0)], ids=["none", "zero"])
def test_at_temperature_0_it_is_match_on_every_tree(how, sampling):
    for size in range(4):
        for number, draft in enumerate(trees(size)):
            session = begin((PROMPT, (1, 2), (0, 0))[number % 3], 9, sampling=sampling)
            seen = TARGET(session.tokens, draft)
            assert how(session, draft, seen, NO_DICE) == Match()(session, draft, seen, NO_DICE)


def test_at_temperature_0_a_tied_token_does_not_pass_for_the_one_that_is_named():
    assert judge(deterministic_chain((1,)), (.4, .4, .2), (.4, .4, .2), sampling=None) == Verdict((), (0,))


# --- the output distribution --------------------------------------------------------------------------------------

P = Table({(): (.60, .25, .08, .07)})
Q = (.1, .3, .4, .2)


def distribution_of(draft, how=None) -> dict:
    """Distribution of the first token of a round with this draft, or with what this function draws."""
    session = begin((3,), 9, sampling=WARM)

    def once(dice):
        one = draft(dice) if callable(draft) else draft
        return (how or TypicalAcceptance())(session, one, P((3,), one), dice).tokens[0]
    return every_outcome(once)


@pytest.mark.parametrize(("token", "gap"), [(0, .4), (1, .75), (2, 0.0), (3, 0.0)])
def test_a_deterministic_proposal_is_always_emitted_if_it_passes_and_harmless_if_it_fails(token, gap):
    dist = distribution_of(deterministic_chain((token,)))
    assert distance(dist, {i: p for i, p in enumerate(P.rows[()])}) == pytest.approx(gap, abs=1e-12)


def test_a_drawn_token_changes_the_distribution_by_exactly_what_the_docstring_says():
    dist = distribution_of(lambda dice: Draft((dice.choose(Categorical(torch.arange(4), torch.tensor(Q))),), (ROOT,)))
    p, kept = P.rows[()], Q[0] + Q[1]              # 0 and 1 pass
    assert [dist[i] for i in range(4)] == pytest.approx([(Q[i] if i < 2 else 0) + (1 - kept) * p[i] for i in range(4)])
    assert distance(dist, dict(enumerate(p))) > 0.05


@pytest.mark.parametrize("what", ["draft-model", "prompt-lookup", "token-recycling"])
def test_with_real_drafters_it_is_off_the_target_distribution_when_sampling_and_not_at_temperature_0(what):
    def once(dice):
        world = kit()
        return run(Method(Fixed(2, 2, 3), world.part(what), world.part("typical")), dice, tokens=4)
    assert distance(every_outcome(once), true_law(tokens=4)) > 0.01
    world = kit(sampling=None)
    method = Method(Fixed(2, 2, 3), world.part(what), world.part("typical"))
    assert run(method, NO_DICE, None, 12) == run(catalog.build("ar", kit(sampling=None)), NO_DICE, None, 12)


def test_where_nothing_drafted_can_pass_the_output_is_the_targets():
    strict = TypicalAcceptance(Typical(1.0, 1.0))
    flat = Table({(): (.25,) * 4})                 # p = exp(-H) for every token, and the comparison is strict
    session, draft = begin((3,), 9, sampling=WARM), deterministic_chain((2,))
    dist = every_outcome(lambda dice: strict(session, draft, flat((3,), draft), dice).tokens[0])
    assert dist == pytest.approx(dict.fromkeys(range(4), .25))


# --- the catalogue --------------------------------------------------------------------------------------------------

def test_it_stands_behind_an_at_and_makes_the_method_lossy():
    method = catalog.build("draft-model(depth=2)@typical(eps=0.2)", kit())
    assert method.how == TypicalAcceptance(Typical(0.2, 0.3))
    assert method.when == Fixed(2)
    assert not catalog.card_of("draft-model@typical(eps=0.2)").lossless


@pytest.mark.parametrize("wrong", [{"eps": -0.1}, {"delta": 1.5}, {"extra": "argmax"}])
def test_parameters_that_mean_nothing_are_refused(wrong):
    with pytest.raises(Refusal):
        make(kit(), **wrong)
