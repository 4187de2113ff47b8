"""`specdec canvas` from its words to its files; wrong words are one sentence and exit code 2."""

import json
import re

import pytest

from specdec_lib import cli
from specdec_lib.bench import canvas_run
from specdec_lib.canvas.catalog import canvas_cards

TABLE = ["canvas", "--world", "table", "--limit", "2"]


def test_a_run_of_the_table_world_is_written_and_shown(tmp_path, capsys):
    words = [*TABLE, "--methods", "ssd(rows=2)", "--keep", "1", "--out", str(tmp_path / "new" / "run")]
    assert cli.run(words) == 0
    shown = capsys.readouterr()
    assert "2 of 2" in shown.out
    assert "cost of a forward by its rows" in shown.out
    told = json.loads((tmp_path / "new" / "run" / "summary.json").read_text())
    assert list(told["methods"]) == ["stepwise", "ssd(rows=2)"]
    assert set(told["row_cost"]) == {"1", "2", "4", "8"}
    assert cli.run(words) == 0                     # finished: told again
    assert capsys.readouterr().out == shown.out


def test_the_help_names_every_method(capsys):
    assert cli.run(["canvas", "--help"]) == 0
    assert canvas_cards().keys() <= set(re.findall(r"[\w-]+", capsys.readouterr().out))


@pytest.mark.parametrize(("words", "said"), [
    (["--methods", "oak"], "there is no canvas method named 'oak'"), (["--methods", "ssd(rows=0)"], "from 1 to 256"),
    (["--methods", ""], "at least one"), (["--world", "chess"], "no world named 'chess'"),
    (["--limit", "0"], "--limit"), (["--keep", "-1"], "--keep"), (["--threads", "0"], "threads"),
    (["--methods", "stepwise,stepwise"], "twice"), (["--out", ""], "it is empty")])
def test_wrong_words_are_one_sentence(words, said, tmp_path, capsys):
    assert cli.run([*TABLE, "--out", str(tmp_path / "out"), *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "out" / "summary.json").exists()


def test_a_stop_says_that_the_same_command_continues(tmp_path, capsys, monkeypatch):
    def stop(*words, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(canvas_run, "decode_task", stop)
    assert cli.run([*TABLE, "--out", str(tmp_path / "out")]) != 0
    assert "the same command continues" in capsys.readouterr().err
