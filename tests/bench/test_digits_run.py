"""`specdec digits`: what is asked becomes methods, a killed run continues, and its figures follow from its images."""

import json
import shutil

import pytest
import torch

from specdec_lib import cli
from specdec_lib.analysis import digits as analysis
from specdec_lib.bench import digits_run
from specdec_lib.bench.digits_run import DigitOptions, parse_method, parse_methods, read_method, run_digits
from specdec_lib.continuous import loop
from specdec_lib.continuous.patch_model import load_pair
from specdec_lib.continuous.rule import EXACT, PUBLISHED
from specdec_lib.types import Refusal
from tests.small_bench import refused

METHODS = "mixture-plain,mixture(depth=3,prefill=0.15)"
ASKED = DigitOptions(METHODS, images=20, batch=15, keep=4, threads=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    return out, run_digits(ASKED, out)


def test_methods_are_written_with_the_parameters_of_plan_and_rule():
    plain, exact, published, own = parse_methods(
        "diffusion-plain,diffusion(depth=8,aligned=False),diffusion-published,diffusion-published(softening=2.0)")
    assert plain.plan is None
    assert (exact.plan.depth, exact.plan.aligned, exact.plan.rule) == (8, False, EXACT)
    assert published.plan.rule == PUBLISHED
    assert own.plan.rule.softening == 2
    assert [method.lossless for method in (plain, exact, published, own)] == [True, True, False, False]


@pytest.mark.parametrize(("wrong", "sentence"), [
    ("flow", "there is no method 'flow'"), ("mixture-published", "there is no method"),
    ("mixture(width=2)", "no parameter 'width'"), ("mixture-plain(depth=2)", "no parameter 'depth'"),
    ("mixture(softening=42.0,tries=9)", "no denoising steps"), ("diffusion(softening=42.0)", "give a number of tries"),
    ("diffusion(depth=16)", "depth is 1 to 15"), ("diffusion(depth='two')", "cannot take depth='two': input"),
    ("diffusion(depth=True)", "cannot take depth=True"), ("diffusion(aligned='x')", "cannot take aligned='x'"),
    ("diffusion-plain(depth=2)", "it takes none"), ("diffusion(softening=True)", "cannot take softening=True"),
    ("mixture,mixture", "none twice"),
    ("", "at least one method"), ("mixture(", "is not a name with parameters")])
def test_wrong_methods_are_refused_in_a_sentence(wrong, sentence, tmp_path, capsys):
    assert cli.run(["digits", "--methods", wrong, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert "\n" not in said


@pytest.mark.parametrize("words", [["--images", "30"], ["--images", "0"], ["--batch", "0"], ["--keep", "0"],
                                   ["--threads", "0"]])
def test_wrong_sizes_are_refused(words, tmp_path, capsys):
    assert cli.run(["digits", *words, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("specdec: ")


def test_the_counts_are_those_of_the_images(finished):
    out, summary = finished
    found = summary["methods"]["mixture(depth=3,prefill=0.15)"]
    target, draft = load_pair("mixture")
    labels = digits_run.classes(20)
    states = [loop.decode(target, draft, labels[some], torch.arange(20)[some], loop.ImagePlan(3, prefill=0.15))
              for some in (slice(0, 15), slice(15, 20))]
    origin = torch.cat([state.origin for state in states])
    kept, replaced = int((origin == loop.KEPT).sum()), int((origin == loop.REPLACED).sum())
    assert (found["accepted"], found["tested"]) == (kept, kept + replaced)
    assert found["acceptance"] == pytest.approx(kept / (kept + replaced))
    assert found["target_forwards"] == sum(state.target_forwards for state in states)
    assert found["by_position"][:3] == [None] * 3
    assert summary["methods"]["mixture-plain"]["target_forwards"] == 2 * 16
    assert summary["methods"]["mixture-plain"]["acceptance"] is None


def test_images_of_one_distribution_are_seldom_told_apart_and_not_never():
    """Every class is a token of its own: permuted across classes, the smallest of these p-values would be 1."""
    dice, place = torch.Generator().manual_seed(0), torch.randn(10, 16, 4, generator=torch.Generator().manual_seed(1))
    found = [digits_run.against(*(place[digits_run.classes(40)] + 0.1 * torch.randn(40, 16, 4, generator=dice)
                                  for _ in range(2)))["p_value"] for _ in range(12)]
    assert 0.25 < sum(found) / len(found) < 0.75
    assert min(found) < 0.4


def test_the_first_images_are_kept_in_half_precision(finished):
    out, _ = finished
    tensors, about = read_method(digits_run.method_file(out, "mixture-plain"))
    target, _ = load_pair("mixture")
    plain = loop.decode_plain(target, digits_run.classes(15), torch.arange(15)).tokens[:4]
    assert tensors["tokens"].dtype == torch.float16
    assert torch.allclose(tensors["tokens"].float(), plain, atol=2e-3)
    assert about["batches"] == [15, 5]


def test_a_killed_run_continues_with_the_next_method_and_gives_the_same_figures(finished, tmp_path, monkeypatch):
    run = digits_run.run_method
    with monkeypatch.context() as patch:
        patch.setattr(digits_run, "run_method", lambda method, *rest: run(method, *rest) if method.plan is None
                      else (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_digits(ASKED, tmp_path)
    made = digits_run.method_file(tmp_path, "mixture-plain").stat().st_mtime_ns
    monkeypatch.setattr(digits_run, "shorten", lambda path, keep: None)
    again = run_digits(ASKED, tmp_path)
    assert digits_run.method_file(tmp_path, "mixture-plain").stat().st_mtime_ns == made, "not decoded again"
    for name, found in finished[1]["methods"].items():
        words = "accuracy", "frechet", "acceptance", "energy"
        assert all(again["methods"][name][word] == found[word] for word in words)


def test_a_finished_run_is_read_and_other_settings_are_refused(finished):
    out, summary = finished
    assert run_digits(ASKED, out) == json.loads(json.dumps(summary))
    with pytest.raises(Refusal, match="other settings"):
        run_digits(DigitOptions(METHODS, images=40, batch=15, keep=4, threads=1), out)


def test_a_damaged_file_is_refused(finished, tmp_path):
    (tmp_path / "one.safetensors").write_bytes(b"nothing")
    with pytest.raises(Refusal, match="missing or damaged"):
        read_method(tmp_path / "one.safetensors")
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(Refusal, match="damaged run"):
        run_digits(ASKED, tmp_path)
    with pytest.raises(Refusal, match="holds no finished run"):
        analysis.read_run(tmp_path)


@pytest.mark.parametrize("name", ["summary.json", "mixture-plain.safetensors"])
def test_a_folder_of_something_else_is_refused_and_stays_as_it_was(name, tmp_path):
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(Refusal, match=f"holds {name} and no settings.json.*: give another --out"):
        run_digits(ASKED, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("name", "content"), [
    ("summary.json", "{}"), ("summary.json", "[" * 100_000), ("summary.json", '{"methods": {"mixture-plain": 5}}'),
    ("summary.json", '[1]'), ("settings.json", "[" * 100_000)])
def test_a_finished_run_that_is_damaged_is_one_sentence(name, content, finished, tmp_path, capsys):
    shutil.copytree(finished[0], tmp_path / "out")
    (tmp_path / "out" / name).write_text(content)
    words = ["--images", "20", "--batch", "15", "--keep", "4", "--threads", "1", "--out", str(tmp_path / "out")]
    assert "holds a damaged run" in refused(["digits", "--methods", METHODS, *words], capsys)


def test_exact_images_of_the_shipped_run_are_not_told_from_plain_ones_and_published_ones_are():
    run = analysis.read_run()
    apart = {name: analysis.told_apart(found).startswith("told") for name, found in run.methods.items()}
    assert {name for name, found in run.methods.items() if not found["lossless"]} == {"diffusion-published"}
    assert [name for name, is_apart in apart.items() if is_apart] == ["diffusion-published"]


def test_the_table_of_a_run_has_a_line_for_each_method_and_untimed_ones_a_dash(finished):
    lines = analysis.digits_table(finished[1]).splitlines()
    assert [line.split()[0] for line in lines] == ["method", *finished[1]["methods"]]
    untimed = {"methods": {"mixture": {**finished[1]["methods"]["mixture-plain"], "seconds": None}}}
    assert "–" in analysis.digits_table(untimed).splitlines()[1]


def test_plain_methods_are_parsed_as_their_kind():
    assert parse_method("diffusion-plain").kind == "diffusion"
