"""SpecBranch: lossless with every ablation and drafter, PEARL without branches and cut, and less is discarded."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.loop import begin, decode
from specdec_lib.models.table import Table
from specdec_lib.schedules import overlap, workers
from specdec_lib.schedules.cut import SOME
from specdec_lib.scores import TokenStats
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Budget, Refusal
from tests.methods.parallel import ADVERSARIES, greedy_on_a_script, real_kit
from tests.worlds import PROMPT, TARGET, WARM, Scripted, Trained, kit, network_kit, run, true_law

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


def test_with_a_trained_class_on_the_real_model_it_writes_plain_decodings_tokens():
    world = real_kit()
    assert world("specbranch(depth=4, predict='h-rad')", 32) == world("ar", 32)


def test_an_unknown_predictor_and_a_missing_checkpoint_are_refused():
    for name, said in (("hrad", "predict is"), ("length", "needs length-predictor"), ("h-rad", "needs h-rad")):
        with pytest.raises(Refusal, match=said):
            catalog.build(f"specbranch(predict='{name}')", kit())


# --- with H-RAD, on a network of three tokens; its class is the last verified token -----------------------------------

WORLD = network_kit()
PREDICTED = "specbranch(depth=2, most=2, epsilon=.4, predict='h-rad')"


def network_law(spec, tokens=3):
    def once(dice):
        world = replace(WORLD, target=WORLD.target.fresh(), draft=FEW, indexes={}, memory={})
        return run(catalog.build(spec, world), dice, tokens=tokens, target=world.target)
    return every_outcome(once)


@pytest.fixture
def _no_time_passes(monkeypatch):
    """A budget may follow measured times, which would differ between the runs of one enumeration."""
    for module in (overlap, workers):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.0)


@pytest.mark.parametrize("spec", [PREDICTED, "specbranch(depth=3, most=1, epsilon=0, predict='h-rad')"])
@pytest.mark.usefixtures("_no_time_passes")
def test_with_predicted_classes_it_keeps_the_target_distribution(spec):
    assert distance(network_law(spec), network_law("ar")) < 1e-9


def test_the_predicted_class_decides_what_stays_pending():
    world = replace(WORLD, target=WORLD.target.fresh(), draft=FEW)
    keep = catalog.build(PREDICTED, world).schedule.keep
    chain = replace(deterministic_chain((0, 1)), stats=(TokenStats(.5, .9, .0, 1.0), TokenStats(.5, .1, .0, 1.0)))
    kept = {}
    for last in (0, 1, 2):
        session = begin((0, 1, last), 9)
        world.target.prefill(session.tokens[:-1])
        kept[last] = len(keep(session, chain, 2))
    assert kept == {0: 0, 1: 1, 2: 2}, "none of it, the tokens before the doubtful one, all of it"


@pytest.mark.parametrize("depth", ["2", "None"])
def test_the_predicted_length_is_compared_with_what_waits_not_with_the_training_or_the_whole_draft(depth):
    """The shipped network knows up to ten tokens; two of two that wait are all of them."""
    world = replace(WORLD, target=WORLD.target.fresh(), draft=FEW)
    keep = catalog.build(f"specbranch(depth={depth}, epsilon=.4, predict='length')", world).schedule.keep
    keep = replace(keep, predict=replace(keep.predict, length=lambda tokens: 1.8))
    chain = replace(deterministic_chain((0, 1)), stats=(TokenStats(.5, .1, .0, 1.0), TokenStats(.5, .1, .0, 1.0)))
    assert [len(keep(begin((0, 1), 9), chain, longest)) for longest in (2, 3)] == [2, 0]


def test_before_two_tokens_are_known_the_drafters_confidence_decides():
    world = replace(WORLD, target=WORLD.target.fresh(), draft=FEW)
    assert catalog.build(PREDICTED, world).schedule.keep.predict(begin((2,), 9), 2) == SOME


def test_a_target_without_hidden_states_is_refused():
    with pytest.raises(Refusal, match="keeps no features"):
        catalog.build(PREDICTED, replace(kit(), checkpoints=WORLD.checkpoints))


def test_a_predictor_of_another_shape_is_refused():
    lost = WORLD.checkpoints["h-rad"]
    short = Trained("h-rad", {**lost.state, "first.weight": lost.state["first.weight"][:, :-1]}, lost.meta)
    lacking = [(Trained("h-rad", {name: one for name, one in lost.state.items() if name != gone}, lost.meta),
                f"lacks the tensor {gone}") for gone in lost.state]
    for wrong, said in ((short, "trained for another model"), *lacking):
        with pytest.raises(Refusal, match=said):
            catalog.build(PREDICTED, replace(WORLD, draft=FEW, checkpoints={"h-rad": wrong}))


def test_it_drafts_in_a_process_what_it_drafts_in_turn():
    here, there = (rounds(f"specbranch(depth=3, most=5, epsilon=.45, workers='{kind}')", kit(), 2).output
                   for kind in ("inline", "process"))
    assert here == there


def test_on_the_real_model_it_writes_plain_decodings_tokens():
    world = real_kit()
    assert world("specbranch(depth=4)", 32) == world("ar", 32)


def test_where_a_predictor_may_keep_all_of_a_draft_uncertainty_does_not_stop_it():
    world = replace(WORLD, target=WORLD.target.fresh(), draft=FEW)
    assert catalog.build(PREDICTED, world).when.epsilon == 0
    assert catalog.build(PREDICTED.replace(", predict='h-rad'", ""), world).when.epsilon == .4
