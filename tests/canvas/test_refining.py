"""Tolerator's two stages: shares, what is kept, drawn again and locked, the budget, and the contrasts at its side."""

import math

import pytest
import torch

from specdec_lib.canvas.catalog import make_canvas_method
from specdec_lib.canvas.forecast import forecast
from specdec_lib.canvas.loop import decode, finished
from specdec_lib.canvas.methods.vote import majority
from specdec_lib.canvas.outcome import corrections, wrong_positions
from specdec_lib.canvas.refining import Refinement, annealed, hide_least_confident, hide_random, refine
from specdec_lib.canvas.types import Canvas, CanvasRound, CanvasSession
from specdec_lib.canvas.world_table import TableDiffusion
from specdec_lib.dice import Dice
from specdec_lib.exact import every_outcome
from specdec_lib.types import Refusal
from tests.canvas.tables import LENGTH, Remembered, empty, remembered

DICE = Dice(1)


def run(spec: str, model, canvas=None, dice=DICE):
    return finished(canvas or empty(model), model, make_canvas_method(spec, model), dice)


def full(model, tokens) -> CanvasSession:
    """A session that has just been filled with these tokens, the first with the highest confidence."""
    round = CanvasRound(tuple(range(LENGTH)), tokens, tuple(.9 - .1 * at for at in range(LENGTH)))
    return CanvasSession.begin(empty(model)).after(round)


def test_the_share_falls_along_half_a_cosine():
    assert [annealed(step, 5, .8, .4) for step in (0, 2, 4)] == pytest.approx([.8, .6, .4])
    assert annealed(1, 5, .8, .4) == pytest.approx(.4 + .4 * .5 * (1 + math.cos(math.pi / 4)))
    assert annealed(0, 1, .8, .4) == .8


@pytest.mark.parametrize("spec", ["tolerator(forwards={})", "remask(forwards={})", "vote(forwards={}, runs=2)",
                                  "parallel(forwards={})"])
@pytest.mark.parametrize("forwards", [4, 8])
def test_the_budget_of_forwards_is_kept(spec, forwards):
    model = remembered()
    session = run(spec.format(forwards), model)
    assert session.forwards == sum(model.calls) <= forwards
    assert session.canvas.full
    if "parallel" not in spec:                     # which stops where the masks do
        assert session.forwards == forwards


def test_the_first_stage_takes_its_share_and_the_second_hides_what_the_cosine_says():
    model = remembered()
    session = run("tolerator(forwards=6, fill=0.34, start=1.0, finish=0.25)", model)
    assert [len(round.hidden) for round in session.rounds] == [0, 0, 4, 3, 2, 1]
    assert [len(round.positions) for round in session.rounds[:2]] == [2, 2]


def test_a_hidden_position_is_seen_as_a_mask_and_the_others_as_they_are():
    model, seen = remembered(), []

    class Watched(Remembered):
        def __call__(self, canvases):
            seen.append(canvases[0])
            return super().__call__(canvases)

    watched = Watched(model.model)
    for session in decode(empty(model), watched, make_canvas_method("tolerator(forwards=8)", model), DICE):
        round, asked = session.rounds[-1], seen[-1]
        if round.hidden:
            assert asked.masked == round.hidden
            before = session.canvases()[-2]
            assert asked == before.erase(round.hidden)
            assert set(round.positions) <= set(round.hidden)


def test_only_the_least_probable_old_tokens_are_drawn_again():
    model = remembered()
    start = full(model, (0, 1, 2, 0))
    rule = Refinement(hide_random, start=1.0, finish=1.0, update=.5)
    [after] = refine(start, model, rule, 1, DICE)
    row = model((start.canvas.erase(range(LENGTH)),))[0]
    old = sorted(range(LENGTH), key=lambda at: row.confidence_of(at, start.canvas.tokens[at]))
    assert after.rounds[-1].positions == tuple(sorted(old[:2]))
    assert after.rounds[-1].hidden == (0, 1, 2, 3)
    assert all(after.canvas.tokens[at] == start.canvas.tokens[at] for at in old[2:])


def test_the_hidden_subset_is_uniform():
    session = full(remembered(), (0, 0, 0, 0))
    law = every_outcome(lambda dice: hide_random(session, (0, 1, 2, 3), 2, dice))
    assert len(law) == 6
    assert all(prob == pytest.approx(1 / 6) for prob in law.values())


def test_remasking_hides_the_tokens_that_were_written_with_the_lowest_probability():
    session = full(remembered(), (0, 0, 0, 0))
    assert hide_least_confident(session, (0, 1, 2, 3), 2, DICE) == (2, 3)
    later = session.after(CanvasRound((3,), (1,), (.99,), hidden=(3,)))
    assert hide_least_confident(later, (0, 1, 2, 3), 2, DICE) == (1, 2)
    assert hide_least_confident(later, (0, 3), 1, DICE) == (0,)


def test_a_position_is_locked_after_equal_results_in_a_row_and_all_locked_ends_early():
    certain = torch.full((3,) * LENGTH, 1e-9, dtype=torch.float64)
    certain[(1,) * LENGTH] = 1
    model = Remembered(TableDiffusion(certain / certain.sum()))
    session = run("tolerator(forwards=60, fill=0.02, lock=3)", model)
    assert session.forwards < 60
    assert session.rounds[-1].locked == (0, 1, 2, 3)
    drawn = {at: sum(at in round.positions for round in session.rounds[1:]) for at in range(LENGTH)}
    assert set(drawn.values()) == {3}
    assert session.canvas.tokens == (1,) * LENGTH


def test_another_result_starts_the_count_again():
    model = remembered()
    start, rule = full(model, (0, 1, 2, 0)), Refinement(hide_random, .75, .75, temperature=5.0, lock=2)
    sessions = list(refine(start, model, rule, 16, Dice(2)))
    same, locked, chances = dict.fromkeys(range(LENGTH), 0), set(), 0
    for before, session in zip((start, *sessions), sessions, strict=False):
        for at, token in zip(session.rounds[-1].positions, session.rounds[-1].tokens, strict=True):
            chances += same[at] == 1 and token != before.canvas.tokens[at]
            same[at] = same[at] + 1 if token == before.canvas.tokens[at] else 0
        assert len(session.rounds[-1].hidden) == max(1, round(.75 * (LENGTH - len(locked))))
        assert not set(session.rounds[-1].hidden) & locked
        locked |= {at for at in same if same[at] >= 2}
        assert set(session.rounds[-1].locked) == locked
    assert locked
    assert chances                                 # a count was begun and broken off


def test_refining_mends_what_independent_filling_got_wrong_in_a_world_of_agreeing_pairs():
    """Two positions that must differ, filled at once from equal marginals: one look at each other mends it."""
    joint = torch.full((2, 2), 1e-6, dtype=torch.float64)
    joint[0, 1], joint[1, 0] = .5, .5
    model = TableDiffusion(joint / joint.sum())
    canvas = Canvas((2, 2), 2, (0, 1))
    assert run("parallel(k=2)", model, canvas).canvas.tokens == (0, 0)
    mended = run("tolerator(forwards=4, fill=0.25, start=0.5, finish=0.5)", model, canvas)
    assert mended.canvas.tokens in ((0, 1), (1, 0))
    assert mended.rounds[0].tokens == (0, 0)


def test_end_tokens_are_damped_while_filling_and_not_while_refining():
    class Ending:
        vocab, mask, end = 3, 2, (1,)

        def __call__(self, canvases):
            logits = torch.log(torch.tensor([.48, .52, 1e-9], dtype=torch.float64))
            return forecast(logits.expand(len(canvases), 2, 3), (0, 1), 2)

    canvas = Canvas((2, 2), 2, (0, 1))
    session = run("tolerator(forwards=2, start=1.0, finish=1.0, damping=1.2)", Ending(), canvas)
    assert session.rounds[0].tokens == (0, 0)
    assert session.rounds[1].tokens == (1, 1)
    assert run("tolerator(forwards=1, damping=1.0)", Ending(), canvas).canvas.tokens == (1, 1)


def test_the_vote_takes_the_most_frequent_token_and_of_equal_ones_that_of_the_earliest_run():
    canvases = [Canvas(tokens, 9, (0, 1, 2)) for tokens in ((1, 2, 3), (1, 3, 4), (2, 4, 4))]
    told = majority((0, 1, 2), canvases)
    assert told.tokens == (1, 2, 4)
    assert told.confidences == pytest.approx((2 / 3, 1 / 3, 2 / 3))
    assert told.forwards == 0


def test_runs_of_a_vote_differ_and_begin_with_the_same_canvas():
    model = remembered()
    session = run("vote(forwards=8, runs=4, temperature=1.0)", model)
    ends = [canvas.tokens for canvas in session.canvases() if canvas.full]
    assert len(set(ends)) > 1
    assert [canvas for canvas in session.canvases() if canvas == session.start] == [session.start] * 4


def test_corrections_are_counted_by_what_the_token_was_and_became():
    answer = (0, 0, 0, 0)
    session = full(remembered(), (0, 1, 1, 0))
    session = session.after(CanvasRound((0, 1, 2, 3), (1, 0, 2, 0), (.5,) * 4, hidden=(0, 1, 2, 3)))
    assert corrections(session, answer) == (1, 1, 1, 0)
    assert corrections(session, None) == (0, 0, 0, 3)
    assert wrong_positions(session.canvas, answer) == 2
    assert wrong_positions(session.canvas, None) is None


@pytest.mark.parametrize("spec", ["tolerator(start=0.0)", "tolerator(finish=1.5)", "tolerator(update=0.0)",
                                  "tolerator(lock=0)", "tolerator(forwards=0)", "tolerator(fill=0.0)",
                                  "tolerator(damping=0.5)", "tolerator(temperature=-1.0)", "vote(forwards=2, runs=3)",
                                  "vote(runs=0)", "remask(fill=2.0)", "ssd(rows=0)", "ssd(tree='oak')",
                                  "ssd(order='left')", "stepwise(block=-1)", "parallel(k=0)", "threshold(theta=0.0)",
                                  "threshold(theta=1.1)", "factor(f=0.0)", "stepwise(temperature=-1.0)"])
def test_values_that_mean_nothing_are_refused(spec):
    with pytest.raises(Refusal):
        make_canvas_method(spec, remembered())
    for fine in ("tolerator(start=1.0, lock=1)", "ssd(rows=256)", "threshold(theta=1.0)"):
        make_canvas_method(fine, remembered())
