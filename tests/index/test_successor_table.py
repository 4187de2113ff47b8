import torch

from specdec_lib.index.successor_table import SuccessorTable
from specdec_lib.scores import RowStats
from specdec_lib.types import ROOT, Budget, Draft, Round, Session, Verdict


def round_of(draft, path, extra, ids) -> Round:
    row_stats = RowStats(torch.tensor(ids), torch.zeros(len(ids), len(ids[0])))
    return Round(Budget(2), draft, row_stats, Verdict.of(draft, path, extra), ())


def session_of(*rounds, prompt=(5, 6)) -> Session:
    session = Session(prompt, len(prompt), 50)
    for one in rounds:
        session = session.after(one)
    return session


FORK = Draft((7, 8), (ROOT, ROOT))
FIRST = round_of(FORK, (0,), 9, [[7, 8, 1], [9, 2, 3], [4, 4, 5]])        # 7 accepted, 8 rejected, 9 emitted
PLAIN = round_of(Draft(), (), 6, [[6, 7, 8]])
AGAIN = round_of(Draft((7, 6), (ROOT, 0)), (), 1, [[1, 0, 0], [3, 3, 3], [2, 2, 2]])


def rows(table) -> dict:
    return {token: table.successors(token) for token in range(10) if table.successors(token)}


def after(*rounds, **more) -> dict:
    table = SuccessorTable(3, text=False)
    table.read(session_of(*rounds, **more))
    return rows(table)


def test_every_row_of_a_forward_is_stored_also_of_rejected_nodes():
    assert after(FIRST) == {6: (7, 8, 1), 7: (9, 2, 3), 8: (4, 4, 5)}


def test_the_root_row_belongs_to_the_last_committed_token():
    assert after(FIRST, PLAIN)[9] == (6, 7, 8)


def test_a_later_row_of_a_token_replaces_the_earlier_one():
    assert after(FIRST, PLAIN, AGAIN)[7] == (3, 3, 3)


def test_in_one_round_an_accepted_row_replaces_a_rejected_one():
    assert after(FIRST, PLAIN, AGAIN)[6] == (1, 0, 0)             # 6 was committed, and also drafted and rejected


def test_rows_are_cut_to_the_top():
    table = SuccessorTable(2, text=False)
    table.read(session_of(FIRST))
    assert table.successors(6) == (7, 8)


def test_unrecorded_rows_of_a_replay_are_not_stored():
    replayed = round_of(FORK, (0,), 9, [[7, 8, 1], [9, 2, 3], [-1, -1, -1]])
    assert after(replayed) == {6: (7, 8, 1), 7: (9, 2, 3)}


def test_the_table_depends_on_the_history_alone_in_any_order_of_calls():
    histories = [(FIRST, PLAIN, AGAIN), (FIRST,), (), (PLAIN, AGAIN), (FIRST, AGAIN), (FIRST, PLAIN, AGAIN)]
    table = SuccessorTable(3, text=False)
    for history in histories:
        table.read(session_of(*history))
        assert rows(table) == after(*history)


def test_the_same_rounds_after_another_prompt_are_another_history():
    table = SuccessorTable(3, text=False)
    table.read(session_of(FIRST))
    table.read(session_of(FIRST, prompt=(5, 3)))
    assert rows(table) == after(FIRST, prompt=(5, 3))
    assert 6 not in rows(table)


def test_a_token_without_a_row_has_its_successors_in_the_text_newest_first():
    table = SuccessorTable(2)
    table.read(session_of(prompt=(4, 1, 4, 2, 4, 1, 4, 3, 4)))
    assert table.successors(4) == (3, 1)
    assert table.successors(3) == (4,)
    assert table.successors(9) == () == SuccessorTable(text=False).successors(9)


def test_a_row_of_the_target_comes_before_the_text():
    table = SuccessorTable(3)
    table.read(session_of(prompt=(6, 5, 6)))
    assert table.successors(6) == (5,)
    table.read(session_of(FIRST, prompt=(6, 5, 6)))
    assert table.successors(6) == (7, 8, 1)
    table.read(session_of(prompt=(6, 5, 6)))
    assert table.successors(6) == (5,)
