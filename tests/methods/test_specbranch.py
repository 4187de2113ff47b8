"""SpecBranch: lossless with every ablation and drafter, PEARL without branches and cut, and less is discarded."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.loop import decode
from specdec_lib.models.table import Table
from specdec_lib.types import Budget, Refusal
from tests.methods.parallel import ADVERSARIES, greedy_on_a_script, real_kit
from tests.worlds import PROMPT, TARGET, WARM, Scripted, kit, run, true_law

# A drafter of few outcomes, so that many rounds can be enumerated; most=4 gives two branches at its uncertain rows.
FEW = Table({(): (.4, .3, .3), (0,): (.3, .7, 0.0), (1,): (0.0, 0.0, 1.0), (2,): (.4, .3, .3)})
ABLATIONS = ["depth=2, most=4, epsilon=.45", "depth=2, most=1, epsilon=.45", "depth=2, most=4, epsilon=0",
             "depth=2, most=1, epsilon=0", "depth=1, most=5"]


@pytest.mark.parametrize("values", ABLATIONS)
def test_every_ablation_keeps_the_target_distribution(values):
    world = replace(kit(), draft=FEW)
    dist = every_outcome(lambda dice: run(catalog.build(f"specbranch({values})", world), dice))
    assert distance(dist, true_law()) < 1e-12


@pytest.mark.parametrize("draft", ADVERSARIES.values(), ids=ADVERSARIES)
@pytest.mark.parametrize(("values", "tokens"), [("depth=2, most=4", 2), ("depth=1, most=4", 3)])
def test_no_drafter_moves_the_distribution(draft, values, tokens):
    world = replace(kit(), draft=draft)
    dist = every_outcome(lambda dice: run(catalog.build(f"specbranch({values})", world), dice, tokens=tokens))
    assert distance(dist, true_law(tokens=tokens)) < 1e-12


@pytest.mark.parametrize("other", ["svip", "adaedl", "match"])
def test_other_policies_and_rules_keep_it_too(other):
    dist = every_outcome(lambda dice: run(catalog.build(f"specbranch(depth=2, most=4)@{other}", kit()), dice,
                                          tokens=2))
    assert distance(dist, true_law(tokens=2)) < 1e-12


def test_a_policy_stops_the_branches():
    """svip's threshold of 0 nats stops every branch at its first token."""
    session = rounds("specbranch(most=5, epsilon=0)@svip(depth=6, h=0.0)", kit(), 1)
    free = rounds("specbranch(most=5, epsilon=0)@svip(depth=6, h=9.0)", kit(), 1)
    assert all(one.ahead.tokens == one.ahead.branches for one in session.rounds)
    assert any(one.ahead.tokens > one.ahead.branches for one in free.rounds)


def rounds(spec, world, seed, tokens=40, target=TARGET, prompt=PROMPT):
    *_, session = decode(prompt, target, *catalog.build(spec, world), max_new_tokens=tokens, sampling=WARM,
                         dice=Dice(seed))
    return session


def test_without_branches_and_cut_it_is_pearl_round_for_round():
    for seed in range(5):
        mine, pearl = (rounds(spec, kit(), seed) for spec in ("specbranch(depth=3, most=1, epsilon=0)",
                                                              "pearl(depth=3)"))
        assert mine.output == pearl.output
        assert [one.verdict for one in mine.rounds] == [one.verdict for one in pearl.rounds]
        assert [one.ahead for one in mine.rounds] == [one.ahead for one in pearl.rounds]


class Forks(Scripted):
    """A drafter that is uncertain at every eighth token: there it prefers a wrong one, the right one second."""

    def __call__(self, tokens, draft):
        scores = super().__call__(tokens, draft)
        for row, length in enumerate([len(tokens)] + [len(tokens) + depth for depth in draft.depths]):
            if length % 8 == 0 and length < len(self.text):
                scores.logits[row] = 0.0
                scores.logits[row, 31], scores.logits[row, self.text[length]] = 1.0, 0.9
            elif length < len(self.text):
                scores.logits[row, self.text[length]] = 9.0
        return scores


def at_forks(spec):
    """Tokens for each forward, and the discarded share of what was drafted, over a text with a fork in every eight."""
    text = tuple(3 + place % 11 for place in range(120))
    world = replace(kit(None), target=Scripted((1, 2), text), draft=Forks((1, 2), text))
    *_, session = decode((1, 2), world.target, *catalog.build(spec, world), max_new_tokens=96)
    assert session.output == text[:96]
    ahead = [one.ahead for one in session.rounds]
    return 96 / len(ahead), sum(one.discarded for one in ahead) / sum(one.tokens for one in ahead)


@pytest.mark.parametrize("depth", [4, 6, 8])
def test_less_is_discarded_than_by_pearl_where_the_drafter_knows_its_doubt(depth):
    mine, pearl = at_forks(f"specbranch(depth={depth})"), at_forks(f"pearl(depth={depth})")
    assert mine[1] < pearl[1]
    assert mine[0] >= pearl[0]


def test_branches_and_cut_both_take_part_in_that():
    whole, one_branch, no_cut = (at_forks(f"specbranch(depth=6{values})") for values in ("", ", most=1", ", epsilon=0"))
    assert whole[0] > one_branch[0], "the second branch holds the right token"
    assert whole[1] < no_cut[1], "what follows an uncertain token is not submitted"


def test_the_draft_stops_where_it_will_branch():
    budget = catalog.build("specbranch(depth=4)", kit()).when(rounds("ar", kit(), 0, 2), Dice(0))
    assert isinstance(budget, Budget)
    assert (budget.depth, budget.width) == (4, 3)
    assert budget.stop is not None


def test_greedily_it_writes_the_targets_text_whatever_the_drafter_says():
    greedy_on_a_script("specbranch(depth=3, epsilon=.3)", "specbranch(depth=3, most=5, epsilon=0)")


def test_with_a_predicted_class_on_the_real_model_it_writes_plain_decodings_tokens():
    world = real_kit()
    assert world("specbranch(depth=4, predict='length')", 32) == world("ar", 32)


def test_an_unknown_predictor_and_a_missing_checkpoint_are_refused():
    for name, said in (("hrad", "predict is"), ("length", "length-predictor")):
        with pytest.raises(Refusal, match=said):
            catalog.build(f"specbranch(predict='{name}')", kit())


def test_it_drafts_in_a_process_what_it_drafts_in_turn():
    here, there = (rounds(f"specbranch(depth=3, most=5, epsilon=.45, workers='{kind}')", kit(), 2).output
                   for kind in ("inline", "process"))
    assert here == there


def test_on_the_real_model_it_writes_plain_decodings_tokens():
    world = real_kit()
    assert world("specbranch(depth=4)", 32) == world("ar", 32)
