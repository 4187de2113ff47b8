"""The nested rounds of a decode: every verification of every level once, at the tokens that it verified."""

from specdec_lib import catalog, show
from specdec_lib.dice import Dice
from specdec_lib.loop import decode
from specdec_lib.show.hierarchy import verified_rows
from tests.worlds import network_kit

STACK = ("ngram", "draft-model")


def session():
    made = network_kit()
    method = catalog.build("hierarchical(stack='ngram+draft-model',blocks=(2,3))", made)
    *_, last = decode((0, 2, 1), made.target, *method, max_new_tokens=30, dice=Dice(2), sampling=made.sampling)
    return last


def test_every_round_ends_with_the_targets_row_and_its_rows_spell_the_output():
    done = session()
    rows = verified_rows(done, STACK, str)
    assert len(rows) == len(done.rounds)
    spelled = []
    for turn, (some, one) in enumerate(zip(rows, done.rounds, strict=True), 1):
        assert [row.label for row in some[:-1]] == [f"{turn}  draft-model ← ngram"] * (len(some) - 1)
        assert some[-1].label == f"{turn}  target ← draft-model"
        assert some[-1].start == len(spelled) + 1
        inner = [word for row in some[:-1] for word in (*row.drafted[:row.accepted], *([row.own] if row.own else []))]
        assert inner == list(some[-1].drafted)
        spelled += [*some[-1].drafted[:some[-1].accepted], *([some[-1].own] if some[-1].own else [])]
        assert all(row.start >= some[-1].start for row in some)
        assert len(one.draft) == len(some[-1].drafted)
    assert spelled == [str(token) for token in done.output]


def test_the_figure_shows_the_rounds_that_were_asked_for():
    done = session()
    rows = verified_rows(done, STACK, str)
    figure = show.nested_rounds(done, STACK, str, first=2, most=2)
    assert list(figure.layout.yaxis.ticktext) == [row.label for some in rows[1:3] for row in some]
