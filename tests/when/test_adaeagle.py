"""AdaEAGLE: from prediction to length, the combined rule by hand, whose predictor is used, what raises Refusal."""

from dataclasses import replace
from math import exp

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.loop import begin, decode
from specdec_lib.models.table import Table
from specdec_lib.scores import TokenStats
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.adaeagle import CARD, AdaEagle, LongEnough
from tests.worlds import PROMPT, SHAPE, WARM, kit, network_kit, random_eagle, random_lengths, run


def predicting(number):
    return AdaEagle(lambda tokens: number, 5)


def chain(*probs):
    return tuple(TokenStats(prob, prob, 0.0, 0.0) for prob in probs)


@pytest.mark.parametrize(("number", "length"), [(2.4, 2), (2.6, 3), (-3.0, 0), (.4, 0), (5.4, 5), (99.0, 5), (None, 0)])
def test_a_prediction_is_rounded_and_clamped_between_zero_and_the_longest(number, length):
    assert predicting(number)(begin((1, 2), 30), NO_DICE) == Budget(length)


def test_the_combined_rule_drafts_beyond_the_prediction_while_the_chain_is_probable():
    stop = LongEnough(2, -.6)                                      # exp(-.6) = .5488
    assert not stop(chain(.1)), "shorter than predicted, at any probability"
    assert stop(chain(.9, .6))
    assert not stop(chain(.9, .62))
    assert not stop(chain(.9, .9, .7))
    assert stop(chain(.9, .9, .67))
    assert not stop(chain(*[.95] * 11))
    assert stop(chain(*[.95] * 12))


def test_the_combined_rule_drafts_the_longer_of_both_lengths():
    low, high = (.9, .05, .05), (.4, .3, .3)
    drafter, session = DraftModel(Table({(): low, (0, 0): high})), begin((1, 1), 20)

    def length(number):
        when = AdaEagle(lambda tokens: number, 9, combined=True)
        return len(drafter(session, when(session, NO_DICE), NO_DICE))

    assert length(0.0) == length(1.0) == length(3.0) == 3          # .9 * .9 > exp(-.6) > .9 * .9 * .4
    assert length(4.0) == 4
    assert length(99.0) == 9
    assert .9 * .9 * .4 < exp(-.6) < .9 * .9


def test_the_combined_rule_drafts_at_least_one_token():
    when = AdaEagle(lambda tokens: 0.0, 4, combined=True)
    session = begin((1, 1), 20)
    assert when(session, NO_DICE).depth == 4
    assert len(DraftModel(Table({(): (.4, .3, .3)}))(session, when(session, NO_DICE), NO_DICE)) == 1


def test_the_policy_of_a_spec_uses_the_predictor_of_the_specs_drafter():
    numbers = {}
    for spec in ("eagle@adaeagle", "draft-model@adaeagle", "early-exit@adaeagle"):
        world = network_kit()
        predict = catalog.build(spec, world).when.predict
        numbers[spec] = predict(PROMPT)
        alone = network_kit()
        name = spec.partition("@")[0]
        assert alone.part("adaeagle", drafter=name).predict(PROMPT) == numbers[spec]
    assert len(set(numbers.values())) == 3
    assert network_kit().part("adaeagle").predict(PROMPT) == numbers["eagle@adaeagle"]


def test_the_prediction_reads_the_state_of_the_last_token_and_costs_no_target_forward():
    world = network_kit(None)
    method = catalog.build("eagle@adaeagle", world)
    target, calls = world.target, []

    def when(session, dice):
        before = target.forwards
        number = method.when.predict(session.tokens)
        calls.append((session.tokens, number, target.forwards - before))
        return Budget(min(max(round(number), 0), 3))

    for _ in decode(PROMPT, target, when, method.what, method.how, max_new_tokens=12):
        pass
    assert all(forwards == 0 for *_, forwards in calls)
    assert len(calls) > 2
    w = target.weights
    state = world.checkpoints["length-predictor"].state

    def layer(name, x):
        return state[f"eagle.{name}.weight"].double() @ x + state[f"eagle.{name}.bias"].double()

    def rms_norm(x):
        return x / (x.square().mean() + SHAPE.eps).sqrt()

    for tokens, number, _ in calls:
        lm = target.fresh()
        lm.tap((2,))
        lm.prefill(tokens[:-1])
        x = torch.cat((rms_norm(w.embedding[tokens[-1]]), rms_norm(lm.features(tokens)[len(tokens) - 2, 0])))
        x = torch.nn.functional.silu(layer("first", x))
        for name in ("second", "third"):
            x = x + torch.nn.functional.silu(layer(name, x))
        assert number == pytest.approx(float(layer("out", x)), abs=1e-4)


def test_a_prompt_of_one_token_has_no_state_and_starts_with_plain_decoding():
    world = network_kit()
    assert catalog.build("eagle@adaeagle", world).when(begin((1,), 5), NO_DICE) == Budget(0)


@pytest.mark.parametrize("spec", ["eagle", "draft-model", "early-exit"])
@pytest.mark.parametrize("combined", [False, True])
def test_on_a_network_the_output_distribution_is_that_of_plain_decoding(spec, combined):
    def dist(spec):
        def once(dice):
            world = network_kit()
            return run(catalog.build(spec, world), dice, tokens=3, target=world.target)
        return every_outcome(once)

    assert distance(dist(f"{spec}@adaeagle(combined={combined})"), dist("ar")) < 1e-9


def test_eagle_drafts_the_same_beside_other_readers_of_hidden_states():
    alone, beside = network_kit(), network_kit()
    for world in (alone, beside):
        world.checkpoints["eagle"] = random_eagle(SHAPE, (0, 1), (0, 2))
    one = catalog.build("eagle(depth=3)", alone)
    other = catalog.build("eagle(depth=3)@adaeagle", beside)
    session = begin(PROMPT, 20, sampling=WARM)
    assert one.what(session, Budget(3), Dice(1)).stats == other.what(session, Budget(3), Dice(1)).stats
    assert alone.target.cache.taps == (0, 1)
    assert beside.target.cache.taps == (0, 1, 2)


def test_the_longest_length_can_be_set():
    assert CARD.make(network_kit()).longest == 3
    assert CARD.make(network_kit(), longest=7).longest == 7


def test_a_drafter_without_a_predictor_is_refused_and_the_trained_ones_are_listed():
    with pytest.raises(Refusal, match="eagle2.*draft-model, eagle, early-exit"):
        catalog.build("eagle2@adaeagle", network_kit())
    assert catalog.build("eagle2@adaeagle(drafter='eagle')", network_kit()).when.longest == 3


def test_a_missing_checkpoint_is_refused_with_the_training_command():
    with pytest.raises(Refusal, match="specdec train length-predictor"):
        catalog.build("draft-model@adaeagle", kit())


def test_a_target_without_hidden_states_is_refused():
    with pytest.raises(Refusal, match="features"):
        catalog.build("draft-model@adaeagle", kit(checkpoints=network_kit().checkpoints))


def test_a_predictor_of_another_target_is_refused():
    foreign = {"length-predictor": random_lengths(replace(SHAPE, hidden=12), ("eagle",))}
    with pytest.raises(Refusal, match="eagle.first.weight"):
        CARD.make(replace(network_kit(), checkpoints=foreign))
    lost = random_lengths(SHAPE, ("eagle",))
    del lost.state["eagle.second.bias"]
    with pytest.raises(Refusal, match="eagle.second.bias"):
        CARD.make(replace(network_kit(), checkpoints={"length-predictor": lost}))


@pytest.mark.parametrize("wrong", [{"longest": -1}, {"least": .1}, {"least": float("nan")}], ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal, match="zero or"):
        CARD.make(network_kit(), **wrong)
