"""Results on disk: what is written is read back, older and newer tables are understood, and costs are what was paid."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specdec_lib.bench import results
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.measure import Cost
from specdec_lib.types import Refusal
from tests.bench.made_up import turn

ROWS = (turn(3, 2, when=.125, what=.25, target=.5, how=.0625), turn(0, 0)._replace(not_best=1))     # kept exactly
DONE = Outcome((7, 7, 7, 9), 1.5, sum(row.seconds for row in ROWS), 4, 2, ROWS)
METHOD = Decode(4, "qa", "sam", 0, 0, False, 10, DONE, "text", ("t", "e", "x", "t"), 0.5)
SECOND = replace(METHOD, turn=1, repeat=1, score=None, outcome=replace(DONE, rows=ROWS[:1], tokens=(7, 7, 7)))
PEER = Decode(4, "qa", "hf-generate", 0, 0, True, 10, Outcome((7, 7), 2.0, 0.25, 1, 1), "ü", ("ü", ""))
ALL = [METHOD, SECOND, PEER]


@pytest.fixture
def written(tmp_path):
    """A folder that holds the tables of all three."""
    results.tables(ALL).write(tmp_path)
    return tmp_path


def test_decodes_are_read_back_equal_with_their_rounds_in_order(written):
    assert results.read_results(written) == ALL


def test_rounds_that_drafted_ahead_in_parallel_keep_what_they_did(tmp_path):
    ahead = replace(METHOD, outcome=replace(DONE, rows=tuple(row._replace(wall=.75, ahead=2, discarded=1)
                                                             for row in ROWS)))
    results.tables([ahead]).write(tmp_path)
    assert results.read_results(tmp_path) == [ahead]


def test_a_run_without_any_round_is_read_back(tmp_path):
    results.tables([PEER]).write(tmp_path)
    assert results.read_results(tmp_path) == [PEER]


@pytest.mark.parametrize(("table", "column", "values"), [
    ("decodes", "seconds", [None, 1.0, 1.0]), ("decodes", "seconds", [float("nan"), 1.0, 1.0]),
    ("decodes", "seconds", [-1.0, 1.0, 1.0]), ("decodes", "seconds", ["x"] * 3), ("decodes", "seconds", [[1.0]] * 3),
    ("decodes", "method", [None, "sam", "sam"]), ("decodes", "method", [5] * 3), ("decodes", "turn", [None, 1, 1]),
    ("decodes", "text", [None] * 3), ("decodes", "tokens", [None] * 3), ("decodes", "tokens", [["x"]] * 3),
    ("decodes", "question_id", [{"a": 1}] * 3), ("decodes", "question_id", [[1]] * 3), ("decodes", "peer", [1] * 3),
    ("decodes", "forwards", [-5] * 3), ("rounds", "emitted", [None, 1, 1]), ("rounds", "when", [float("inf")] * 3),
    ("rounds", "depth", ["x"] * 3)])
def test_a_column_with_what_no_run_writes_is_refused(written, table, column, values):
    path = written / f"{table}.parquet"
    found = pq.read_table(path)
    pq.write_table(found.set_column(found.column_names.index(column), column, pa.array(values[:len(found)])), path)
    with pytest.raises(Refusal, match="cannot be read, its tables are damaged"):
        results.read_results(written)


@pytest.mark.parametrize("change", [
    lambda table: table.drop_columns("method"), lambda table: pa.concat_tables([table, table]),
    lambda table: table.append_column("text", table["text"]),
    lambda table: table.rename_columns([f"c{place}" for place in range(table.num_columns)])])
def test_a_table_with_other_columns_is_refused(written, change):
    pq.write_table(change(pq.read_table(written / "decodes.parquet")), written / "decodes.parquet")
    with pytest.raises(Refusal, match="its tables are damaged"):
        results.read_results(written)


def test_a_table_without_the_newest_column_and_with_one_that_nobody_knows_is_read(written):
    rounds = pq.read_table(written / "rounds.parquet")
    other = rounds.drop_columns("not_best").append_column("colour", pa.array(["red"] * len(rounds)))
    pq.write_table(other, written / "rounds.parquet")
    blank = [replace(one, outcome=replace(one.outcome, rows=tuple(row._replace(not_best=None)
                                                                   for row in one.outcome.rows))) for one in ALL]
    assert results.read_results(written) == blank


def test_seconds_are_paid_for_the_tokens_bought_and_with_prefill_for_all():
    assert METHOD.cost == Cost(4, 1.9375)
    assert METHOD.cost_end_to_end == Cost(4, 3.4375)
    assert PEER.cost == Cost(1, 0.25)
    assert PEER.cost_end_to_end == Cost(2, 2.25)


def test_decodes_are_selected_by_any_field_and_grouped_by_prompt():
    other = replace(PEER, question_id=5)
    assert list(results.select([*ALL, other], method="sam", turn=1)) == [SECOND]
    assert list(results.select(ALL, method="nobody")) == []
    assert results.prompts([METHOD, other, PEER]) == {4: [METHOD, PEER], 5: [other]}
