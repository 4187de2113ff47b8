"""`specdec report --parameters FILE`: values of options and of the notebook, under the command line's own."""

import json

import pytest

from specdec_lib import cli
from specdec_lib.commands import report
from specdec_lib.commands.parameter_file import read_parameters
from specdec_lib.types import Refusal
from tests.small_bench import bench_fixture, curve_fixture, model_fixture, prompts_fixture, refused  # noqa: F401  the fixtures of a small bench


@pytest.fixture(name="file")
def _file(tmp_path):
    def write(text):
        path = tmp_path / "some.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path
    return write


def test_words_are_what_a_command_line_would_hold(file):
    found = read_parameters(file("max-new-tokens: 64\n# why\nmethods:\n  - ar\n  - sam(depth=3)\nlimit: null\ndtype:\n"
                                 "temperature: 0.50\nmethod: 'yes'\n"))
    assert {name: word.text for name, word in found.items()} == {
        "max_new_tokens": "64", "methods": "ar,sam(depth=3)", "temperature": "0.50", "method": "yes"}
    assert [word.line for word in found.values()] == [1, 3, 8, 9]
    assert read_parameters(file("# nothing\n")) == {}


@pytest.mark.parametrize(("text", "said"), [
    ("limit: 3\nseed: [1, [2]]", "line 2: seed takes a text"), ("a: {b: 1}", "line 1: a takes a text"),
    ("limit: 3\nlimit: 4", "line 2: limit is given a second time"), ("- ar\n- sam", "no parameters by name"),
    ("limit: 3\n\tseed: 1", "line 2: this is not YAML"), (b"\xff\xfe\x00x", "is not YAML"), ("word", "by name"),
    ("[" * 5000, "is not YAML"), ("? [a]\n: 1", "takes a text"), ("a: !!python/object/apply:os.system [x]\n", None)])
def test_what_are_no_parameters_is_refused_with_its_line(file, text, said):
    if said is None:                               # tags run nothing: the words are words
        assert read_parameters(file(text))["a"].text == "x"
        return
    with pytest.raises(Refusal, match=said):
        read_parameters(file(text))


def test_a_file_gives_values_and_the_command_line_wins(bench, file, tmp_path, monkeypatch, capsys):
    given = []
    monkeypatch.setattr(report, "write_report", lambda out, values, progress: given.append((values, progress)) or out)
    words = ["report", *bench[1:11], *bench[13:]]   # without --max-new-tokens
    assert "--max-new-tokens" not in words
    path = file("methods: [ar, sam]\nmax_new_tokens: 5\nlimit: 1\nseed: 4\nmethod: sam\nquestion: 2\npeers: ''\n"
                "quiet: true\n")
    assert cli.run([*map(str, words), "--parameters", str(path), "--seed", "7"]) == 0
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert (settings["max_new_tokens"], settings["limit"], settings["seed"]) == (5, 1, 7)
    assert settings["methods"] == ["ar", "sam"]
    assert settings["peers"] == []
    assert given == [({"method": "sam", "question": "2"}, False)]
    assert "times ar" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "said"), [
    ("limit: 2\nlenght: 3", "line 2: there is no parameter 'lenght'; the notebook has method, question"),
    ("run: elsewhere", "no parameter 'run'"), ("parameters: x", "no parameter 'parameters'"),
    ("limit: many", "'--limit': Input should be"), ("limit: 1.5", "'--limit': Input should be"),
    ("methods: [ar, nobody]", "nobody"), ("out: ''", "give a path")])
def test_a_value_that_does_not_fit_is_refused_before_anything_runs(file, text, said, capsys):
    assert said in refused(["report", "--parameters", file(text)], capsys)


@pytest.mark.parametrize(("text", "said"), [
    ("method: eagle2", "the method eagle2 of --parameters has no output to show in this run: give one of ar, sam"),
    ("peers: hf-generate\nmethod: hf-generate", "the method hf-generate of --parameters"),
    ("question: 3", "the question 3 of --parameters has no output to show in this run: give one of 1, 2"),
    ("limit: 1\nquestion: 1", "give one of 2")])
def test_what_the_notebook_will_not_find_is_refused_before_the_bench(bench, file, text, said, tmp_path, capsys):
    words = ["report", *bench[1:], "--parameters", file(f"methods: [ar, sam]\n{text}\n")]
    assert said in refused([*words, *([] if "peers" in text else ["--peers", ""])], capsys)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_is_refused(tmp_path, capsys):
    assert "cannot be read" in refused(["report", "--parameters", tmp_path / "none.yaml"], capsys)


def test_the_help_names_the_file(capsys):
    assert cli.run(["report", "--help"]) == 0
    assert "--parameters" in capsys.readouterr().out
