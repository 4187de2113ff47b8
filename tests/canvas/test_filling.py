"""How many tokens a forward writes, and Fast-dLLM's theorem on writing several at once."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from specdec_lib.canvas.catalog import make_canvas_method
from specdec_lib.canvas.filling import sampled
from specdec_lib.canvas.forecast import forecast
from specdec_lib.canvas.loop import decode, finished
from specdec_lib.canvas.methods.factor import joint_mode_count
from specdec_lib.canvas.order import by_confidence, make_order, ranked, tied
from specdec_lib.canvas.types import Canvas, Choice
from specdec_lib.canvas.world_table import TableDiffusion
from specdec_lib.dice import Dice
from specdec_lib.exact import every_outcome
from specdec_lib.types import NO_DICE, Refusal
from tests.canvas.tables import LENGTH, empty, every_canvas, remembered

DICE = Dice(5)


def sizes(spec: str, canvas, model) -> list[int]:
    return [len(round.positions) for round in finished(canvas, model, make_canvas_method(spec, model), DICE).rounds]


def filled(spec: str, canvas, model, dice=DICE) -> tuple:
    return finished(canvas, model, make_canvas_method(spec, model), dice).canvas.tokens


@pytest.mark.parametrize(("spec", "expected"), [
    ("parallel(k=3)", [3, 1]), ("parallel(k=9)", [4]), ("parallel(forwards=2)", [2, 2]), ("parallel(forwards=3)",
    [2, 1, 1]), ("parallel(forwards=9)", [1, 1, 1, 1]), ("parallel(k=3, block=2)", [2, 2]),
    ("parallel(forwards=3, block=2)", [2, 1, 1]), ("parallel(forwards=1, block=2)", [2, 2]), ("stepwise", [1] * 4)])
def test_tokens_of_every_forward(spec, expected):
    model = remembered()
    assert sizes(spec, empty(model), model) == expected


class Empty:
    """A model of long canvases: every token is as likely as the others."""

    vocab, mask, end = 3, 2, ()

    def __call__(self, canvases):
        return forecast(torch.zeros(len(canvases), len(canvases[0]), 2), range(len(canvases[0])), 2)


@pytest.mark.parametrize(("spec", "expected"), [
    ("parallel(forwards=16, block=8)", [2] * 16), ("parallel(forwards=12, block=8)", [3, 3, 2] * 4),
    ("parallel(forwards=20, block=8)", [2, 2, 2, 1, 1] * 4), ("parallel(forwards=4, block=8)", [8] * 4),
    ("parallel(forwards=32, block=8)", [1] * 32), ("parallel(forwards=3, block=8)", [8] * 4)])
def test_blocks_share_the_forwards_equally(spec, expected):
    assert sizes(spec, empty(Empty(), 32), Empty()) == expected


def test_every_run_of_a_vote_shares_its_forwards_among_the_blocks_anew():
    assert sizes("vote(forwards=16, runs=2)", empty(Empty(), 16, block=8), Empty()) == ([2] * 8 + [16]) * 2


def test_a_threshold_and_a_factor_that_nothing_meets_are_stepwise_decoding():
    model = remembered()
    for canvas in every_canvas(model):
        expected = filled("stepwise", canvas, model)
        assert filled("threshold(theta=1.0)", canvas, model) == expected
        assert filled("factor(f=0.000001)", canvas, model) == expected


def test_a_threshold_writes_all_that_reach_it_and_the_bound_counts():
    model = remembered()
    row = model((empty(model),))[0]
    second = sorted(row.confidence)[-2]
    assert sizes(f"threshold(theta={second!r})", empty(model), model)[0] == 2
    assert sizes(f"threshold(theta={math.nextafter(second, 1)!r})", empty(model), model)[0] == 1


@given(some.lists(some.floats(0, 1), min_size=1, max_size=8), some.floats(.1, 3))
def test_the_factor_rule_takes_the_largest_number_that_fits(confidences, factor):
    ordered = sorted(confidences, reverse=True)
    choices = tuple(Choice(at, 0, confidence) for at, confidence in enumerate(ordered))
    fits = [n for n in range(1, len(ordered) + 1) if (n + 1) * (1 - ordered[n - 1]) < factor]
    assert joint_mode_count(choices, factor) == (max(fits) if fits else 0)


@given(some.integers(0, 10 ** 6), some.floats(.5, 8), some.integers(0, 80))
def test_what_the_factor_rule_writes_together_is_the_joint_mode(seed, sharpness, text):
    """Fast-dLLM's theorem, on the joint distribution of the positions that one forward writes."""
    model = TableDiffusion.random(3, LENGTH, sharpness, seed)
    canvas = empty(model)
    if text % 4:                                   # some positions are given
        canvas = canvas.fill(range(text % 4), [text // 3 ** at % 3 for at in range(text % 4)])
    written = next(decode(canvas, model, make_canvas_method("factor(f=1.0)", model), NO_DICE)).rounds[0]
    known = tuple(slice(None) if token == model.mask else slice(token, token + 1) for token in canvas.tokens)
    others = [at for at in range(LENGTH) if at not in written.positions]
    # axes: the written positions, ascending
    joint = model.joint[known].sum(others) if others else model.joint[known]
    best = torch.unravel_index(joint.argmax(), joint.shape)
    assert dict(zip(sorted(written.positions), map(int, best), strict=True)) == dict(
        zip(written.positions, written.tokens, strict=True))


def test_beyond_the_factor_rule_independent_choices_miss_the_joint_mode():
    """Two positions, both modes at 0.6, whose product is not the most probable pair: why the rule bounds the count."""
    model = TableDiffusion(torch.tensor([[.2, .4], [.4, 1e-9]], dtype=torch.float64) / (1 + 1e-9))
    canvas = Canvas((2, 2), 2, (0, 1))
    assert sizes("factor(f=1.0)", canvas, model) == [1, 1]
    assert filled("parallel(k=2)", canvas, model) == (0, 0)
    assert filled("factor(f=1.0)", canvas, model) in ((0, 1), (1, 0))
    assert model.mode(canvas) in ((0, 1), (1, 0))


def test_blocks_are_filled_from_left_to_right():
    model = remembered()
    session = finished(empty(model, block=1), model, make_canvas_method("stepwise", model))
    assert [round.positions for round in session.rounds] == [(0,), (1,), (2,), (3,)]
    assert session.start.block == 1


def test_orders_differ_and_the_random_one_is_drawn_once_per_decode():
    model, canvas = remembered(seed=2), empty(remembered())
    paths = {order: [round.positions for round in finished(
        canvas, model, make_canvas_method(f"stepwise(order={order!r})", model), DICE).rounds]
        for order in ("confidence", "margin", "entropy", "random")}
    assert paths["random"] != paths["confidence"]
    assert len(set(map(str, paths.values()))) >= 2
    drawn = {str(make_order("random", canvas, Dice(seed))) for seed in range(40)}
    assert len(drawn) > 10


def test_two_positions_of_one_score_are_a_tie_and_so_are_two_tokens_of_one_probability():
    [row] = forecast(torch.tensor([[[3., 0, 1], [2, 0, 1], [2, 0, 1], [1, 1, 0]]]), range(4), None)
    canvas = Canvas((3,) * 4, 3, tuple(range(4)))
    assert [tied(row, canvas, by_confidence, choice) for choice in ranked(row, canvas, by_confidence)] == [
        False, True, True, True]


def test_a_random_order_is_uniform():
    canvas = Canvas((9, 9, 9), 9, (0, 1, 2))
    law = every_outcome(lambda dice: tuple(make_order("random", canvas, dice).rank.items()))
    assert len(law) == math.factorial(3)
    assert all(prob == pytest.approx(1 / 6) for prob in law.values())


def test_drawn_tokens_follow_the_model_and_are_ranked_by_their_own_probability():
    model, canvas = remembered(), empty(remembered())
    row = model((canvas,))[0]
    law = every_outcome(lambda dice: next(choice.token for choice in sampled(row, canvas, by_confidence, 1.0, dice)
                                          if choice.position == 2))
    assert [law[token] for token in range(3)] == pytest.approx(row.logp[2].exp().tolist())
    for seed in range(20):
        choices = sampled(row, canvas, by_confidence, 1.0, Dice(seed))
        scores = [row.confidence_of(choice.position, choice.token) for choice in choices]
        assert scores == sorted(scores, reverse=True)
        assert scores == [choice.confidence for choice in choices]


def test_stepwise_sampling_in_a_fixed_order_draws_from_the_joint_distribution():
    """The forecasts are exact conditionals, so one token at a time in any fixed order gives the law of whole texts."""
    model = TableDiffusion.random(2, 3)
    law = every_outcome(lambda dice: filled("stepwise(block=1, temperature=1.0)", empty(model, 3), model, dice))
    for text in itertools.product(range(2), repeat=3):
        assert law[text] == pytest.approx(float(model.joint[text]))
    together = every_outcome(lambda dice: filled("parallel(k=3, temperature=1.0)", empty(model, 3), model, dice))
    assert max(abs(law[text] - together[text]) for text in law) > .01      # independent draws have another law


def test_a_canvas_with_another_mask_is_refused():
    with pytest.raises(Refusal, match="mask"):
        next(decode(Canvas((7,), 7, (0,)), remembered(), make_canvas_method("stepwise", remembered())))
