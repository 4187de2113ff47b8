"""A bench run on the toy: it is a run like any other, and fills every cell of the ablation."""

from specdec_lib import catalog
from specdec_lib.bench import ablation, toy_bench
from specdec_lib.bench.published import CELLS


def test_words_that_are_no_numbers_are_tokens_all_the_same():
    assert toy_bench.numbered("7 ab") == (7, (97 + 98) % 96)


def test_the_toy_leaves_out_what_needs_a_drafter_that_it_has_not():
    specs = toy_bench.toy_methods(catalog.split(ablation.METHODS))
    assert set(ablation.grid(specs)) == set(CELLS)
    assert not {"eagle", "block-diffusion", "draft-model", ablation.ALIGNED} & set(specs)


def test_where_no_run_lies_a_toy_stands_in_and_writes_plain_decodings_tokens(tmp_path, monkeypatch):
    few = ",".join(["ar", *(spec for spec in catalog.split(ablation.METHODS) if ablation.cell(spec)), "diffuspec-tree"])
    monkeypatch.setattr(ablation, "METHODS", few)
    monkeypatch.setattr(ablation, "toy_bench", lambda specs: toy_bench.toy_bench(specs, prompts=3, tokens=8, steps=4))
    report, whence = ablation.read_or_measure(str(tmp_path / "nothing"))
    assert "a toy stands in" in whence and len(report.entries) == 6
    assert all(entry["identical_prompts"] == 3 for entry in report.entries.values())
    assert report.families == ["toy a", "toy b", "toy c"]
