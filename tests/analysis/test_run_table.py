"""Tables made from runs: the shipped ones are written again byte for byte, and what is no table is refused."""

import json
from pathlib import Path

import pytest

from specdec_lib.analysis import batches, word_batches
from specdec_lib.analysis.run_table import read_table, write_table
from specdec_lib.types import Refusal


@pytest.mark.parametrize("kept", [batches.SHIPPED / batches.TABLE, word_batches.SHIPPED / word_batches.TABLE])
def test_the_shipped_tables_are_written_again_byte_for_byte(kept, tmp_path):
    text = kept.read_text(encoding="utf-8")
    file = write_table(json.loads(text), tmp_path / "new" / "folder" / kept.name)
    assert file.read_text(encoding="utf-8") == text


def test_a_table_of_words_takes_runs_that_are_alike_and_each_once():
    shown = word_batches.read_word_batches()
    word_batches.refuse_mixed(shown.runs, shown.rows)
    with pytest.raises(Refusal, match="these runs differ in dtype"):
        word_batches.refuse_mixed([*shown.runs, {**shown.runs[0], "dtype": "bfloat16"}], shown.rows)
    with pytest.raises(Refusal, match="two runs decode sentences at batch 1 with ar: leave one out"):
        word_batches.refuse_mixed(shown.runs, [*shown.rows, shown.row("sentences", 1, "ar")])


def test_every_element_of_a_list_has_a_line_whatever_its_first_key_is(tmp_path):
    table = {"runs": [{"run": "é", "of": [{"run": 1}]}], "rows": [{"b": 1}, {"a": [2, 3]}], "curves": {"x": []},
             "no": []}
    file = write_table(table, tmp_path / "table.json")
    assert file.read_text(encoding="utf-8").splitlines() == [
        '{"runs":[', '{"run":"é","of":[{"run":1}]}],"rows":[', '{"b":1},', '{"a":[2,3]}],"curves":{"x":[]},"no":[]}']
    assert read_table(file, dict, dict, "things", "make it") == table


def test_a_table_is_made_from_the_runs_where_no_file_is_and_its_refusals_go_through(tmp_path):
    def refusing(folder: Path):
        raise Refusal(f"{folder.name} holds no runs")

    file = tmp_path / "table.json"
    assert read_table(file, lambda folder: {"rows": [folder.name]}, lambda told: told["rows"], "things", "") == [
        tmp_path.name]
    with pytest.raises(Refusal, match=f"^{tmp_path.name} holds no runs$"):
        read_table(file, refusing, dict, "things", "make it")
    for text in ("[]", "{", '{"rows": 3}', "\xff"):
        file.write_text(text, encoding="latin-1")
        with pytest.raises(Refusal, match=r"table\.json is no table of things \(.*\): make it"):
            read_table(file, refusing, lambda told: list(told["rows"]), "things", "make it")
