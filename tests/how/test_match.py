"""Draw from the target, keep while it matches; the same with noise shared by draft and target."""

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.how.match import Match, SharedNoise, shared_noise_acceptance
from specdec_lib.loop import begin, decode
from specdec_lib.models.table import Table
from specdec_lib.scores import Categorical
from specdec_lib.trees import deterministic_tree
from specdec_lib.types import NO_DICE, Method
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.fixed import Fixed
from tests.worlds import PROMPT as START
from tests.worlds import TARGET, WARM, Scripted, kit, run, true_law

PROMPT, TEXT = (1, 2), (5, 6, 7, 8)
P, Q = (torch.tensor(probs, dtype=torch.float64) for probs in ((.2, .5, .3), (.6, .3, .1)))


def judge(draft):
    return Match()(begin(PROMPT, 9), draft, Scripted(PROMPT, TEXT)(PROMPT, draft), NO_DICE)


def test_it_follows_the_branch_that_the_target_draws():
    verdict = judge(deterministic_tree([(5, 9), (5, 6, 3), (4,)], nodes=9))
    assert verdict.path == (0, 2)
    assert verdict.tokens == (5, 6, 7)


def test_a_draft_that_is_all_right_earns_a_bonus_token():
    assert judge(deterministic_tree([(5, 6, 7)], nodes=9)).tokens == (5, 6, 7, 8)


def test_without_a_draft_it_is_plain_decoding():
    assert judge(deterministic_tree([], nodes=9)).tokens == (5,)


# --- noise shared by draft and target ---

def drawn(probs, seed, position=0) -> int:
    return SharedNoise(seed).at(position).choose(Categorical(torch.arange(len(probs)), probs))


@pytest.mark.parametrize("what", ["draft-model", "prompt-lookup", "token-recycling", "feedback-retrieval"])
def test_with_shared_noise_every_drafter_leaves_plain_decodings_very_tokens(what):
    """So the output has the distribution of plain decoding with the same noise, whatever the drafter."""
    for seed in range(20):
        plain = run(catalog.build("ar", kit()), SharedNoise(seed), tokens=12)
        world = kit()
        assert run(Method(Fixed(2, 2, 3), world.part(what), Match()), SharedNoise(seed), tokens=12) == plain


def test_with_shared_noise_plain_decoding_has_the_targets_distribution():
    """8000 decodes of two tokens: every frequency within four standard errors."""
    counts = {}
    for seed in range(8000):
        tokens = run(catalog.build("ar", kit()), SharedNoise(seed), tokens=2)
        counts[tokens] = counts.get(tokens, 0) + 1
    want = true_law(TARGET, START, tokens=2)
    assert set(counts) <= set(want)
    for tokens, p in want.items():
        assert abs(counts.get(tokens, 0) / 8000 - p) < 4 * (p * (1 - p) / 8000) ** .5


@pytest.mark.parametrize("dice", [SharedNoise, Dice])
def test_a_perfect_draft_is_accepted_whole_with_shared_noise_and_not_with_independent_random_numbers(dice):
    target = Table({(): (.25,) * 4})
    *_, last = decode((0,), target, Fixed(3), DraftModel(target.fresh()), Match(), max_new_tokens=40, sampling=WARM,
                      dice=dice(1))
    wasted = sum(len(round.draft) - len(round.verdict.path) for round in last.rounds[:-1])
    assert (wasted == 0) == (dice is SharedNoise)


def test_the_probability_of_agreement_is_the_formulas_and_lies_between_the_bound_and_the_best_coupling():
    overlap = float(torch.minimum(P, Q).sum())
    exact, same = shared_noise_acceptance(P, Q), sum(drawn(P, seed) == drawn(Q, seed) for seed in range(4000)) / 4000
    assert abs(same - exact) < 4 * (exact * (1 - exact) / 4000) ** .5
    assert overlap / (2 - overlap) < exact < overlap              # (1 - TV) / (1 + TV) and 1 - TV
    assert shared_noise_acceptance(P, P) == pytest.approx(1)


def test_a_draft_without_some_words_agrees_under_shared_noise_as_often_as_it_is_drawn():
    sure, few = torch.tensor([0., 1., 0.]).double(), torch.tensor([0., .4, .6]).double()
    assert shared_noise_acceptance(P, sure) == shared_noise_acceptance(sure, P) == pytest.approx(.5)
    exact, same = shared_noise_acceptance(P, few), sum(drawn(P, n) == drawn(few, n) for n in range(4000)) / 4000
    assert abs(same - exact) < 4 * (exact * (1 - exact) / 4000) ** .5


def test_the_noise_belongs_to_the_token_so_distributions_on_fewer_tokens_share_it():
    few = Categorical(torch.tensor([700, 3]), torch.tensor([.5, .5], dtype=torch.float64))
    more = Categorical(torch.arange(1000), torch.full((1000,), 1e-9, dtype=torch.float64).index_fill_(
        0, torch.tensor([3, 700]), .5))
    assert [SharedNoise(s).choose(few) for s in range(50)] == [SharedNoise(s).choose(more) for s in range(50)]
