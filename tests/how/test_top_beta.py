"""Top-beta on logits made by hand: rank and gap, what follows, ties, and greedy decoding where one token is left."""

import itertools
import math

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.acceptance import RankMargin, top_beta
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.top_beta import TopBeta, make, top_standings
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.sampling import Sampling
from specdec_lib.scores import Scores
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, ROOT, Draft, Method, Refusal, Verdict
from specdec_lib.when.fixed import Fixed
from tests.worlds import PROMPT, TARGET, WARM, kit, run, true_law

ROW = (5.0, 4.5, 4.0, 3.75, 1.0)                   # gaps 0, .5, 1, 1.25, 4


def scores(*rows, dtype=torch.float32) -> Scores:
    """Raw logits by row; row 0 follows the context, row i + 1 node i."""
    return Scores(torch.tensor(rows, dtype=dtype))


def judge(draft, *rows, beta=3, tolerance=1.0, sampling=None, dice=NO_DICE) -> Verdict:
    return make(kit(), beta, tolerance)(begin((9,), 20, sampling=sampling), draft, scores(*rows), dice)


def passing(row, **bounds) -> list[int]:
    return [token for token in range(len(row)) if judge(deterministic_chain((token,)), row, row, **bounds).path]


# --- the rule -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("beta", "tolerance", "tokens"), [
    (3, 1.0, [0, 1, 2]), (2, 1.0, [0, 1]), (5, 1.0, [0, 1, 2]), (5, 1.25, [0, 1, 2, 3]), (5, 3.0, [0, 1, 2, 3]),
    (9, 4.0, [0, 1, 2, 3, 4]), (3, math.inf, [0, 1, 2]), (3, 0.99, [0, 1]), (1, 3.0, [0]), (3, 0.0, [0])])
def test_a_token_passes_that_is_among_the_best_and_close_to_the_best(beta, tolerance, tokens):
    assert passing(ROW, beta=beta, tolerance=tolerance) == tokens


@pytest.mark.parametrize("tolerance", [0.125, 0.3, 0.625, 1.0, 1.1, 2.75, 3.0])
@pytest.mark.parametrize("best", [5.0, 17.25, 31.125, 230.5])
def test_a_gap_of_exactly_the_tolerance_passes_at_any_scale(best, tolerance):
    row = torch.tensor([best, best - tolerance, best - tolerance - 1e-6, 0.0], dtype=torch.float64)
    gap = float(row[0] - row[1])
    seen = top_standings(Scores(torch.stack([row, row])), 4)[0]
    assert [token for token in range(4) if top_beta(4, gap)(seen[token])] == [0, 1]


@pytest.mark.parametrize("temperature", [0.2, 1.0, 5.0])
def test_the_test_does_not_look_at_the_temperature(temperature):
    for bounds in ({"beta": 3}, {"beta": 5, "tolerance": 1.25}):
        assert passing(ROW, sampling=Sampling(temperature), dice=Dice(1), **bounds) == passing(ROW, **bounds)


def test_its_rule_is_rank_margin_and_agrees_with_it_off_the_boundary():
    assert make(kit()).rule == RankMargin(3, math.exp(-1.0))
    for seed in range(20):
        row = torch.randn(30, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
        probs, seen = torch.softmax(row, 0), top_standings(Scores(row[None]), 5)[0]
        better = [int((row > logit).sum()) for logit in row]
        near = {token for token in range(30) if float(row.max() - row[token]) <= 2 and better[token] < 5}
        assert {token for token, one in seen.items() if top_beta(5, 2.0)(one)} == near
        assert near == {token for token in row.topk(5).indices.tolist()
                        if probs[token] >= math.exp(-2.0) * probs.max()}


# --- paths and what follows -----------------------------------------------------------------------------------------

def test_the_first_token_that_fails_is_replaced_by_the_targets_best():
    assert judge(deterministic_chain((2, 3, 0)), *[ROW] * 4) == Verdict((0,), (2, 0))
    assert judge(deterministic_chain((3, 0, 0)), *[ROW] * 4) == Verdict((), (0,))
    assert judge(deterministic_chain((2, 1, 2)), *[ROW] * 4) == Verdict((0, 1, 2), (2, 1, 2, 0))


def test_in_a_tree_the_longest_path_is_kept_of_equals_the_likelier_then_the_first():
    assert judge(Draft((0, 2, 3, 2), (ROOT, ROOT, 0, 1)), *[ROW] * 5).path == (1, 3)
    assert judge(Draft((1, 0, 0, 2), (ROOT, ROOT, 0, 1)), *[ROW] * 5).path == (0, 2)       # gaps .5 + 0 against 0 + 1
    assert judge(Draft((2, 0, 0, 1), (ROOT, ROOT, 0, 1)), *[ROW] * 5).path == (1, 3)       # gaps 1 + 0 against 0 + .5
    assert judge(Draft((1, 0, 0, 0), (ROOT, ROOT, 0, 1)), (5.0, 5.0, 0.0), *[ROW[:3]] * 4).path == (0, 2)


def test_above_temperature_0_what_follows_is_drawn_by_the_random_numbers_of_its_position():
    seen = set()
    for seed in range(40):
        dice, draft = Dice(seed), deterministic_chain((2, 3))
        verdict = judge(draft, *[ROW] * 3, sampling=WARM, dice=dice)
        assert verdict == Verdict((0,), (2, dice.at(2).choose(scores(ROW).distribution(0, WARM))))
        seen.add(verdict.tokens[1])
    assert len(seen) > 2


# --- greedy ---------------------------------------------------------------------------------------------------------

def trees(nodes: int, vocab: int = 3):
    """Every draft tree of this size over the vocabulary: siblings differ."""
    for parents in itertools.product(*(range(ROOT, node) for node in range(nodes))):
        for tokens in itertools.product(range(vocab), repeat=nodes):
            if len(set(zip(parents, tokens, strict=True))) == nodes:
                yield Draft(tokens, parents)


@pytest.mark.parametrize("bounds", [(1, 0.0), (1, 3.0), (1, math.inf), (3, 0.0)], ids=str)
def test_with_one_token_or_no_tolerance_it_is_match_on_every_tree(bounds):
    how = make(kit(), *bounds)
    for size in range(4):
        for number, draft in enumerate(trees(size)):
            session = begin((PROMPT, (1, 2), (0, 0))[number % 3], 9)
            seen = TARGET(session.tokens, draft)
            assert how(session, draft, seen, NO_DICE) == Match()(session, draft, seen, NO_DICE)


@pytest.mark.parametrize("vocab", [5, 4096], ids=["small", "made of blocks"])
def test_of_tied_tokens_one_alone_passes_at_beta_1_and_each_without_tolerance(vocab):
    for seed in range(30):
        logits = torch.zeros(2, vocab)
        tied = torch.randperm(vocab, generator=torch.Generator().manual_seed(seed))[:3].tolist()
        logits[:, tied] = 4.0
        named = Scores(logits).best[0]
        for token in tied:
            one, session = deterministic_chain((token,)), begin((9,), 20)
            strict = make(kit(), beta=1)(session, one, Scores(logits), NO_DICE)
            assert strict == Match()(session, one, Scores(logits), NO_DICE)
            assert bool(strict.path) == (token == named)
            assert strict.tokens[-1] == named
            assert make(kit(), beta=3, tolerance=0.0)(session, one, Scores(logits), NO_DICE).path == (0,)


def decoded(what: str, **bounds):
    world = kit(sampling=None)
    return run(Method(Fixed(2, 2, 3), world.part(what), world.part("top-beta", **bounds)), NO_DICE, None, 12)


@pytest.mark.parametrize("what", ["draft-model", "prompt-lookup", "token-recycling"])
def test_decoding_with_beta_1_or_without_tolerance_is_greedy_decoding(what):
    plain = run(catalog.build("ar", kit(sampling=None)), NO_DICE, None, 12)
    assert decoded(what, beta=1, tolerance=3.0) == decoded(what, tolerance=0.0) == plain


def test_with_more_of_both_a_drafts_own_words_stand():
    assert decoded("draft-model", beta=3, tolerance=3.0) != decoded("draft-model", beta=1)


# --- the output distribution --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("token", "gap"), [(0, .4), (1, .75), (2, 0.0), (3, 0.0)])
def test_when_sampling_a_token_that_passes_is_emitted_for_sure_even_with_beta_1(token, gap):
    p = (.60, .25, .08, .07)
    world, draft, session = Table({(): p}), deterministic_chain((token,)), begin((3,), 9, sampling=WARM)
    for bounds, off in (({}, gap), ({"beta": 1}, gap if token == 0 else 0.0)):
        how, rows = make(kit(), **bounds), world((3,), draft)
        dist = every_outcome(lambda dice, how=how, rows=rows: how(session, draft, rows, dice).tokens[0])
        assert distance(dist, dict(enumerate(p))) == pytest.approx(off, abs=1e-12)


def test_with_a_real_drafter_it_is_off_the_target_distribution_when_sampling():
    def once(dice):
        world = kit()
        return run(Method(Fixed(2, 2, 3), world.part("draft-model"), world.part("top-beta")), dice)
    assert distance(every_outcome(once), true_law()) > 0.01


# --- the catalogue --------------------------------------------------------------------------------------------------

def test_it_stands_behind_an_at_and_makes_the_method_lossy():
    method = catalog.build("draft-model@top-beta(beta=5,tolerance=3.0)", kit())
    assert method.how == TopBeta(RankMargin(5, math.exp(-3.0)))
    assert not catalog.card_of("draft-model@top-beta").lossless


@pytest.mark.parametrize("wrong", [{"beta": 0}, {"tolerance": -0.5}, {"tolerance": math.nan}])
def test_parameters_that_mean_nothing_are_refused(wrong):
    with pytest.raises(Refusal):
        make(kit(), **wrong)
