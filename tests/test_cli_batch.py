"""`specdec bench --batch` and `specdec cost --batch` on a random model: what they write, and what they refuse."""

import json

import pytest

from specdec_lib import cli
from specdec_lib.bench import batch_costs
from specdec_lib.cost.batches import load_batch_curve
from specdec_lib.cost.curves import load_curve
from tests.small_bench import CURVE, model_folder, refused


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Words of a bench of three prompts, without its batch and its folder."""
    folder = tmp_path_factory.mktemp("batch")
    lines = [{"question_id": i, "category": "qa", "turns": [text]}
             for i, text in enumerate(("a b c a b", "red green", "d d d d"))]
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    CURVE.save(folder / "curve.json")
    return ["--target", str(model_folder(folder / "tiny")), "--dtype", "float32", "--threads", "1", "--device",
            "cpu"], ["--prompts", str(folder / "p.jsonl"), "--cost", str(folder / "curve.json"), "--methods",
                     "ar,sam(depth=2)", "--max-new-tokens", "6"]


def test_a_bench_in_batches_says_so_and_is_not_set_against_single_decoding(words, tmp_path, capsys):
    for batch in ("1", "2"):
        assert cli.run(["bench", *words[0], *words[1], "--batch", batch, "--out", str(tmp_path / f"b{batch}")]) == 0
    told = json.loads((tmp_path / "b2" / "summary.json").read_text())
    assert told["settings"]["batch"] == 2
    assert all(entry["batch"]["tokens_per_second"] > 0 for entry in told["methods"].values())
    assert "batch" not in json.loads((tmp_path / "b1" / "settings.json").read_text())
    assert [said for said in told["settings"]["warnings"] if "the curve given is of one" in said]
    capsys.readouterr()
    assert cli.run(["compare", str(tmp_path / "b1"), str(tmp_path / "b2")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "b2 is not set against b1: batch is none there and 2 here" in said
    assert "Nothing is averaged over these runs" in said


def test_a_curve_of_batches_is_saved_and_sizes_the_drafts_of_its_batch(words, tmp_path, capsys, monkeypatch):
    assert cli.run(["cost", *words[0], "--batch", "1,3", "--contexts", "8", "--repeats", "1", "--out",
                    str(tmp_path / "curve.json")]) == 0
    curve = load_batch_curve(tmp_path / "curve.json")
    assert (curve.batches, curve.context, curve.dtype, curve.threads) == ((1, 3), 8, "float32", 1)
    assert "the curve of batches is in" in capsys.readouterr().out
    timed, whole = [], batch_costs.batch_of
    monkeypatch.setattr(batch_costs, "batch_of", lambda opened, batch: timed.append(batch) or whole(opened, batch))
    prompts, saved = ["bench", *words[0], *words[1][:2], "--methods", "ar"], ["--cost", str(tmp_path / "curve.json")]
    for name, batch, more in (("one", 1, saved), ("saved", 3, saved), ("own", 2, [])):
        assert cli.run([*prompts, *more, "--batch", str(batch), "--out", str(tmp_path / name)]) == 0
        kept = load_curve(tmp_path / name / "cost.json")
        assert kept.batch == batch
        assert (kept.seconds == (curve.seconds[batch // 2],)) is bool(more)
        assert not json.loads((tmp_path / name / "summary.json").read_text())["settings"]["warnings"][1:]
    assert timed == [2]                            # so many at once, where no curve was given
    assert "not of 4" in refused([*prompts, *saved, "--batch", "4", "--out", str(tmp_path / "4")], capsys)
    saved[1] = str(tmp_path / "own" / "cost.json")
    assert "is of 2 sequences" in refused([*prompts, *saved, "--batch", "3", "--out", str(tmp_path / "3")], capsys)


@pytest.mark.parametrize(("more", "why"), [
    (["bench", "--batch", "0"], "at least 1"), (["bench", "--batch", "2", "--methods", "ar,ppsd"], "ppsd drafts while"),
    (["bench", "--batch", "2", "--peers", "hf-generate"], "leave hf-generate out"),
    (["cost", "--batch", "2,4"], "--batch takes 1 and further"), (["cost", "--batch", "1,300"], "at most 256"),
    (["cost", "--batch", "x"], "whole numbers"),
    (["cost", "--batch", "1,2", "--contexts", "8,16"], "one context"),
    (["cost", "--batch", "1,2", "--contexts", "60"], "too few")])
def test_what_cannot_be_is_one_sentence(words, more, why, tmp_path, capsys):
    if more[-1] == "x":
        assert cli.run([*more, *words[0], "--out", str(tmp_path / "out")]) == 2
        assert why in capsys.readouterr().err
        return
    assert why in refused([*more, *words[0], "--out", str(tmp_path / "out")], capsys)
