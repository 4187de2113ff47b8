"""SSD's canvases are stepwise decoding's: enumerated in a world of three tokens, for every tree, order and block."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from specdec_lib.canvas.catalog import make_canvas_method
from specdec_lib.canvas.draft_rows import SHAPES
from specdec_lib.canvas.loop import finished
from specdec_lib.canvas.order import ORDERS
from specdec_lib.canvas.types import Canvas
from specdec_lib.canvas.world_table import TableDiffusion
from specdec_lib.dice import Dice
from specdec_lib.toys.one_forward_rule import one_forward_rule
from tests.canvas.tables import LENGTH, Remembered, empty, every_canvas, remembered, tied_model

DICE = Dice(3)
TREES = [("chain", 2), *((tree, 5) for tree in SHAPES)]        # two rows are the same canvases in every shape


def choices(session) -> tuple:
    """Everything that was written, in order: positions and tokens."""
    return tuple(pair for round in session.rounds for pair in zip(round.positions, round.tokens, strict=True))


def run(spec: str, canvas: Canvas, model, dice=DICE):
    return finished(canvas, model, make_canvas_method(spec, model), dice)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("block", range(LENGTH))
def test_every_tree_writes_what_stepwise_decoding_writes_in_its_order_on_every_canvas(order, block):
    model, saved = remembered(), 0
    for canvas in every_canvas(model):
        expected = run(f"stepwise(order={order!r}, block={block})", canvas, model)
        assert expected.forwards == len(canvas.masked)
        for tree, rows in TREES:
            session = run(f"ssd(rows={rows}, tree={tree!r}, order={order!r}, block={block})", canvas, model)
            assert choices(session) == choices(expected), (canvas.tokens, tree, rows)
            assert max(round.rows for round in session.rounds) <= rows
            saved += expected.forwards - session.forwards
    assert saved > 0 or block == 1                 # drafts are accepted, except where a block holds one position


@given(some.integers(0, 10 ** 6), some.integers(2, 4), some.integers(2, 5), some.data())
def test_so_it_does_in_any_world(seed, tokens, length, data):
    model = Remembered(TableDiffusion.random(tokens, length, data.draw(some.sampled_from((.3, 2., 6.))), seed))
    text = data.draw(some.tuples(*[some.integers(0, tokens)] * length))
    canvas = Canvas(text, model.mask, tuple(range(length)), data.draw(some.integers(0, length)))
    order, tree = data.draw(some.sampled_from(ORDERS)), data.draw(some.sampled_from(sorted(SHAPES)))
    session = run(f"ssd(rows={data.draw(some.integers(1, 9))}, tree={tree!r}, order={order!r})", canvas, model)
    assert choices(session) == choices(run(f"stepwise(order={order!r})", canvas, model))


def test_exact_ties_are_broken_alike_and_counted():
    model = tied_model()
    stepwise, ssd = (run(spec, empty(model), model) for spec in ("stepwise", "ssd(rows=4)"))
    assert choices(ssd) == choices(stepwise) == tuple((position, 0) for position in range(LENGTH))
    assert stepwise.ties == ssd.ties == LENGTH
    assert run("stepwise(temperature=1.0)", empty(model), model).ties == 0       # dice decide, whatever is equal


def test_a_world_without_ties_counts_none():
    model = remembered()
    assert run("stepwise", empty(model), model).ties == 0


def test_one_forward_for_all_drafts_is_not_stepwise_decoding():
    model = Remembered(TableDiffusion.random(3, 5, .5))
    assert any(one_forward_rule(canvas, model, 4).tokens
               != run("stepwise", canvas, model).canvas.tokens for canvas in every_canvas(model, 5))


def test_a_draft_with_the_right_token_at_another_position_is_not_taken():
    model = remembered()
    taken = []
    for canvas in every_canvas(model):
        session = run("ssd(rows=4)", canvas, model)
        taken += [round.rows > len(round.positions) for round in session.rounds]
    assert any(taken)                              # some rows are useless: the check of the position has work to do
    assert not all(taken)


def test_rows_never_leave_the_open_block():
    class Watched(Remembered):
        def __call__(self, canvases):
            first = canvases[0]
            later = set(first.masked) - set(first.open)
            assert all(canvas.tokens[at] == canvas.mask for canvas in canvases for at in later)
            return super().__call__(canvases)

    model = Watched(TableDiffusion.random(3, LENGTH))
    for canvas, tree in itertools.product(every_canvas(model), SHAPES):
        run(f"ssd(rows=8, tree={tree!r})", replace(canvas, block=2), model)
    assert max(model.calls) > 2


def test_one_row_is_stepwise_decoding_and_costs_the_same():
    model = remembered()
    ssd, stepwise = (run(spec, empty(model), model) for spec in ("ssd(rows=1)", "stepwise"))
    assert [round.forwards for round in ssd.rounds] == [1] * LENGTH
    assert [round.positions for round in ssd.rounds] == [round.positions for round in stepwise.rounds]


def test_where_the_guess_is_always_right_every_forward_writes_as_many_tokens_as_rows():
    model = Remembered(independent())
    session = run("ssd(rows=3)", empty(model), model)
    assert [len(round.positions) for round in session.rounds] == [1, 3]
    assert [(round.rows, round.drafted) for round in session.rounds] == [(1, 0), (3, 2)]
    assert sum(model.calls) == session.rows
    assert {round.drafted for round in run("stepwise", empty(model), model).rounds} == {0}


def independent() -> TableDiffusion:
    """Positions that do not influence each other, each more certain than the next."""
    import torch

    joint = torch.ones(())
    for sure in (.9, .8, .7, .6):
        joint = joint[..., None] * torch.tensor([sure, 1 - sure], dtype=torch.float64)
    return TableDiffusion(joint)


def test_the_shapes_spend_their_rows_as_they_say():
    def first(shape, count):
        return [tuple(f"{rank}{chr(39) * number}" for rank, number in guess)
                for guess in itertools.islice(SHAPES[shape](4), count)]

    assert first("chain", 9) == [("0",), ("0", "1"), ("0", "1", "2"), ("0", "1", "2", "3")]
    assert first("jump", 3) == [("0",), ("0", "1"), ("1",)]
    assert first("token", 6)[2::3] == [("0'",), ("0", "1'")]
    assert first("mixed", 6)[2::3] == [("1",), ("0'",)]
    assert first("subset", 4) == [("0",), ("1",), ("0", "1"), ("2",)]
    assert len(first("subset", 99)) == 15


def test_all_subsets_need_no_order_where_a_chain_does():
    """The three best of the empty canvas are written in another order than they are ranked in, in some world."""
    better = 0
    for seed in range(6):
        model = remembered(seed)
        chain, subset = (run(f"ssd(rows=8, tree={tree!r})", empty(model), model) for tree in ("chain", "subset"))
        better += subset.forwards < chain.forwards
    assert better > 0


def test_a_jump_accepts_a_swapped_order_that_the_chain_rejects():
    model, better = remembered(seed=1), 0
    for canvas in every_canvas(model):
        chain, jump = (run(f"ssd(rows=4, tree={tree!r})", canvas, model) for tree in ("chain", "jump"))
        better += jump.forwards < chain.forwards
    assert better > 0
