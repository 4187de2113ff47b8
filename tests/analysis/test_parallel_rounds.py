"""Rounds as rows: a tree is printed as a tree."""

from specdec_lib import Dice, catalog, decode
from specdec_lib.analysis.parallel_rounds import round_rows, tree_text
from specdec_lib.cards import Kit
from specdec_lib.models.table import Table
from specdec_lib.types import ROOT, Draft


def test_alternatives_stand_in_braces_and_a_chain_as_it_is():
    assert tree_text(Draft((7, 8, 0), (ROOT, 0, 0))) == "7 {8 | 0}"
    assert tree_text(Draft((1, 2, 3), (ROOT, 0, 1))) == "1 2 3"
    assert tree_text(Draft((1, 2, 3, 4), (ROOT, ROOT, 0, 2)), "abcdef".__getitem__) == "{b d e | c}"
    assert tree_text(Draft()) == ""


def test_a_row_tells_what_a_forward_scored_emitted_and_discarded():
    p = Table({(): (.1, .9), (1,): (.8, .2)})
    kit = Kit(p, draft=p, parts=catalog.make_part)
    done = list(decode((0, 1), p, *catalog.build("pearl(depth=2)", kit), max_new_tokens=8, dice=Dice(0)))[-1]
    rows = round_rows(done)
    assert len(rows) == len(done.rounds)
    assert " ".join(row["emitted"] for row in rows).split() == [str(token) for token in done.output]
    assert [row["submitted"] for row in rows] == [" ".join(map(str, one.draft.tokens)) for one in done.rounds]
    assert {row["drafted ahead"] for row in rows[:-1]} == {2}
    serial = list(decode((0, 1), p, *catalog.build("ar", kit), max_new_tokens=3))[-1]
    assert round_rows(serial) == []
