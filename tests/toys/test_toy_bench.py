"""A bench run on the toy: it is a run like any other, and fills every cell of the ablation."""

from specdec_lib.analysis import diffuspec_ablation
from specdec_lib.analysis.diffuspec_published import CELLS
from specdec_lib.specs import split_specs
from specdec_lib.toys import toy_bench


def test_words_that_are_no_numbers_are_tokens_all_the_same():
    assert toy_bench.numbered("7 ab") == (7, (97 + 98) % 96)


def test_the_toy_leaves_out_what_needs_a_drafter_that_it_has_not():
    specs = toy_bench.toy_methods(split_specs(diffuspec_ablation.METHODS))
    assert set(diffuspec_ablation.specs_by_cell(specs)) == set(CELLS)
    asked = {"eagle", "block-diffusion", "draft-model", diffuspec_ablation.ALIGNED, diffuspec_ablation.BLOCK}
    assert not asked & set(specs)


def test_a_toy_run_covers_three_families_and_every_method_writes_plain_decodings_tokens():
    cells = [spec for spec in split_specs(diffuspec_ablation.METHODS) if diffuspec_ablation.cell_of(spec)]
    report = toy_bench.toy_bench(["ar", *cells, "diffuspec-tree"], prompts=3, tokens=8, steps=4)
    assert len(report.entries) == 6
    assert all(entry["identical_prompts"] == 3 for entry in report.entries.values())
    assert report.families == ["toy a", "toy b", "toy c"]
