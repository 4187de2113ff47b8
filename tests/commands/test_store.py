"""A static store from files: what becomes a document, what is refused, and that a kill leaves the old one."""

import gzip
import json
import os

import pytest

from specdec_lib import cli
from specdec_lib.bench.results import Decode, Outcome, tables
from specdec_lib.bench.store_leaks import store_leaks
from specdec_lib.commands import store
from specdec_lib.index.static_store import StaticStore
from specdec_lib.index.store_build import build_store
from specdec_lib.training.data.shards import Shards
from tests.small_bench import WORDS, model_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(model_folder(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
def write(tmp_path):
    def put(name, content):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name
    return put


def ids(words):
    return tuple(WORDS.index(word) for word in words.split())


def run_store(model, out, *sources) -> int:
    return cli.run(["store", *(word for path in sources for word in ("--from", str(path))), "--target", model, "--out",
                    str(out)])


def refused(model, out, *sources, capsys) -> str:
    assert run_store(model, out, *sources) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("specdec: ")]
    assert len(lines) == 1
    assert "Traceback" not in lines[0]
    return lines[0]


def followed(path, words):
    """What the store says after the longest suffix of these words."""
    found = StaticStore(path)
    return found.following(found.find(ids(words)).first, 3)


def test_texts_lines_and_answers_are_all_looked_up_afterwards(model, write, tmp_path, capsys):
    text = write("a.txt", "a b c\nred green blue")
    lines = write("b.jsonl.gz", '\ufeff{"text": "d e f"}\n\n' + json.dumps({"output": ids("g h i")}) + "\n")
    made = Shards(tmp_path / "answers", "tiny")
    made.write(0, [{"source": "self", "temperature": 0.0, "prompt": "a", "output": list(ids("x y z"))}])
    out = tmp_path / "deep" / "my.store"
    assert run_store(model, out, text, lines, tmp_path / "answers") == 0
    assert capsys.readouterr().out == f"15 tokens, documents: 4; use them with --store {out}\n"
    assert followed(out, "b c") == ids("red green blue")          # one text, one document: over the line's end
    assert followed(out, "d e") == ids("f")
    assert followed(out, "g") == ids("h i")
    assert followed(out, "x y") == ids("z")


def test_a_long_text_is_one_document_however_it_is_cut_for_reading(model, write, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "LINES", 2)
    assert run_store(model, tmp_path / "s", write("a.txt", "a\nb\nc\nd\ne\n")) == 0
    assert StaticStore(tmp_path / "s").size == 6
    assert followed(tmp_path / "s", "a b") == ids("c d e")


def test_any_number_of_threads_makes_the_same_store(model, write, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "LINES", 2)
    monkeypatch.setattr(store, "CORES", 3)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    text, files = write("a.txt", "a b\nred\n" * 20 + "blue c\n"), []
    for threads in (1, 2, 100_000):
        out = tmp_path / f"with {threads}"
        assert cli.run(["store", "--from", str(text), "--target", model, "--out", str(out), "--threads",
                        str(threads)]) == 0
        files.append(out.read_bytes())
        assert os.environ["RAYON_NUM_THREADS"] == str(min(threads, 3))
    assert files[0] == files[1] == files[2]


def test_no_threads_at_all_is_refused_before_anything_is_read(model, write, tmp_path, capsys):
    assert cli.run(["store", "--from", str(write("a.txt", "a")), "--target", model, "--out", str(tmp_path / "s"),
                    "--threads", "0"]) == 2
    assert "threads must be at least 1, got 0" in capsys.readouterr().err


def test_a_store_that_was_built_is_taken_by_a_method(model, write, tmp_path, capsys):
    assert run_store(model, tmp_path / "s", write("a.txt", "a b c d")) == 0
    assert cli.run(["generate", "--method", "sam", "--target", model, "--dtype", "float32", "--device", "cpu",
                    "--max-new-tokens", "4", "--store", str(tmp_path / "s"), "a b"]) == 0


@pytest.mark.parametrize(("name", "content", "sentence"), [
    ("a.txt", b"\xff\xfe\x00", "cannot be read as UTF-8 text"), ("a.txt", "", "holds no text and no answers"),
    ("a.jsonl", "{", "line 1 of"), ("a.jsonl", '{"text": "a"}\n[1]\n', "line 2 of"),
    ("a.jsonl", '{"output": [1, true]}', "needs output (a list of token ids, or text) or text"),
    ("a.jsonl", '{"output": [1, 31]}', "knows 0 to 30: it was answered by another model"),
    ("a.jsonl", '{"output": [-1]}', "another model"),
    ("a.jsonl", '{"text": "\\ud83d a"}', "line 1 of"),
    ("a.jsonl", '{"turns": ["a"]}', "needs output"), ("a.jsonl", "\n", "holds no text and no answers")])
def test_what_is_no_corpus_is_refused_by_name(model, write, tmp_path, name, content, sentence, capsys):
    said = refused(model, tmp_path / "s", write("good.txt", "a b"), write(name, content), capsys=capsys)
    assert sentence in said
    assert name in said
    assert not (tmp_path / "s").exists()


def test_a_packed_file_that_is_cut_short_is_refused(model, write, tmp_path, capsys):
    path = write("a.txt.gz", "a b c " * 50)
    for data in (path.read_bytes()[:-6], b"a b"):
        path.write_bytes(data)
        said = refused(model, tmp_path / "s", path, capsys=capsys)
        assert "cannot be read as UTF-8 text" in said
        assert "packed by gzip where its name ends with .gz" in said


def test_places_that_cannot_be_are_refused_before_anything_is_read(model, write, tmp_path, capsys):
    text = write("a.txt", "a b")
    assert "no file or folder" in refused(model, tmp_path / "s", tmp_path / "nowhere", capsys=capsys)
    assert "replaced by its own store" in refused(model, text, text, capsys=capsys)
    assert "is a folder" in refused(model, tmp_path, text, capsys=capsys)
    assert f"name their files, such as {tmp_path}/*.txt" in refused(model, tmp_path / "s", tmp_path, capsys=capsys)
    assert "no folder './nowhere'" in refused("./nowhere", tmp_path / "s", text, capsys=capsys)
    (tmp_path / "run").mkdir()
    told = refused(model, tmp_path / "run" / "decodes.parquet", tmp_path / "run", capsys=capsys)
    assert "is a file of the run in" in told
    assert text.read_text() == "a b"


def test_more_than_the_memory_holds_is_refused_with_both_sizes(model, write, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(store, "free_memory", lambda device: 100)
    assert "GiB of memory and" in refused(model, tmp_path / "s", write("a.txt", "a b c"), capsys=capsys)


def answer(question, tokens, method="ar", repeat=0, turn=0):
    return Decode(question, "qa", method, repeat, turn, False, 3, Outcome(tuple(tokens), 0.0, 1.0, 1, 1))


def finished(folder, *answers):
    folder.mkdir()
    tables(answers).write(folder)
    return folder


def test_the_answers_of_plain_decoding_in_a_bench_are_documents(model, tmp_path, capsys):
    run = finished(tmp_path / "run", answer(1, ids("a b c")), answer(1, ids("d e"), turn=1), answer(2, ids("f g h")),
                   answer(1, ids("x y z"), repeat=1), answer(1, ids("u v w"), "sam"))
    assert run_store(model, tmp_path / "s", run) == 0
    assert "8 tokens, documents: 3;" in capsys.readouterr().out
    assert followed(tmp_path / "s", "a b") == ids("c")
    assert followed(tmp_path / "s", "d") == ids("e")
    assert StaticStore(tmp_path / "s").find(ids("x")).length == 0


def test_a_kept_run_without_its_rounds_gives_its_answers_too(model, tmp_path):
    run = finished(tmp_path / "run", answer(1, ids("a b c")))
    (run / "rounds.parquet").unlink()
    assert run_store(model, tmp_path / "s", run) == 0
    assert followed(tmp_path / "s", "a b") == ids("c")


def test_a_bench_that_is_not_finished_or_cannot_be_read_is_refused(model, tmp_path, capsys):
    (tmp_path / "run" / "parts").mkdir(parents=True)
    assert "is not finished" in refused(model, tmp_path / "s", tmp_path / "run", capsys=capsys)
    broken = finished(tmp_path / "broken", answer(1, ids("a b")))
    (broken / "decodes.parquet").write_bytes(b"PAR1")
    assert "cannot be read" in refused(model, tmp_path / "s", broken, capsys=capsys)


def test_a_store_of_the_very_answers_that_are_measured_is_warned_of_and_another_is_not(tmp_path):
    own, path = [range(n, n + 40) for n in (0, 100, 200)], str(tmp_path / "my.store")
    run = [answer(n, tokens) for n, tokens in enumerate(own)] + [answer(3, range(400, 410)), answer(0, [7], "sam")]
    build_store(path, [own[1], own[2], range(400, 410), range(16)])
    assert store_leaks(run, None) == []
    sentence, = store_leaks(run, path)
    assert sentence.startswith("my.store holds the beginnings of the target's own answers to 2 of 4 prompts")
    build_store(path, [[9, *tokens[:31], 9] for tokens in own])
    assert store_leaks(run, path) == [], "one token short of an opening"


def test_ctrl_c_leaves_the_older_store_as_it_was(model, write, tmp_path, monkeypatch, capsys):
    assert run_store(model, tmp_path / "s", write("a.txt", "a b c")) == 0
    before = (tmp_path / "s").read_bytes()

    def interrupted(*paths):
        raise KeyboardInterrupt
    monkeypatch.setattr("specdec_lib.files.os.replace", interrupted)
    assert run_store(model, tmp_path / "s", write("b.txt", "x y z")) == 130
    assert "is as it was before" in capsys.readouterr().err
    assert (tmp_path / "s").read_bytes() == before
    assert not list(tmp_path.glob(".*"))
