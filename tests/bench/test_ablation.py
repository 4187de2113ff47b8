"""The ablation of DiffuSpec on runs made up by hand: which spec fills which cell, and what one side won of another."""

import pytest

from specdec_lib import catalog
from specdec_lib.bench import ablation, claims, reading, summary
from specdec_lib.bench.decodes import Decode, Outcome
from specdec_lib.bench.folder import Folder
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.published import BOTH, CELLS, CONTROLLER, NEITHER, SEARCH, predicted
from specdec_lib.measure import Row
from specdec_lib.types import Refusal

SPECS = ("diffusion-draft(depth=4)", "diffuspec(depth=4)", "diffuspec(weight=1)", "diffuspec")


def decodes(method, accepted, what, target=1.0, family="qa", drafted=4):
    rows = tuple(Row("d" * bool(drafted), drafted, kept, kept, 1 + kept, drafted, drafted + 1, 0.0, what, target, 0.0,
                     .1, (7,) * (1 + kept), ("d",) * kept + ("",), (2.0,) * (1 + kept)) for kept in accepted)
    tokens = tuple(token for row in rows for token in row.tokens)
    done = Outcome(tokens, 1.0, sum(row.seconds for row in rows), len(tokens), len(rows), rows)
    return [Decode(question, family, method, 0, 0, False, 10, done, "a", ("a",) * len(tokens)) for question in range(5)]


def report(*groups):
    flat = tuple(one for group in groups for one in group)
    about = {"target": {"name": "tiny", "device": "cpu", "dtype": "float32"}, "prompts": {"count": 5},
             "settings": {"cost_curve": None, "temperature": 0.0},
             "methods": summary.methods(flat, dict.fromkeys((d.method for d in flat), True), None), "peers": {}}
    return reading.Report(about, flat)


PLAIN = decodes("ar", [0] * 6, 0.0, drafted=0)
FOUR = [decodes(SPECS[0], [1, 1, 1], .5), decodes(SPECS[1], [2, 2], .75), decodes(SPECS[2], [1, 1, 1], .25),
        decodes(SPECS[3], [2, 2], .5)]
RUN = report(PLAIN, *FOUR)


def test_the_four_cells_are_told_by_their_specs_and_variants_fill_none():
    assert [ablation.cell(spec) for spec in SPECS] == list(CELLS)
    assert ablation.cell("diffuspec(depth=8,weight=1)") == NEITHER and ablation.cell("diffuspec(weight=0.5)") == BOTH
    for other in (ablation.PRINTED, ablation.LESS, ablation.TREE, "ar", "diffuspec(weight=0.2)", "diffuspec@fixed",
                  ablation.ALIGNED):
        assert ablation.cell(other) is None, other


def test_what_the_ablation_measures_fills_every_cell_and_holds_every_variant():
    specs = catalog.split(ablation.METHODS)
    assert list(ablation.grid(reversed(specs)).items()) == list(zip(CELLS, SPECS, strict=True))
    at = report(PLAIN, *(decodes(spec, [1, 1, 1], .5) for spec in specs if spec != "ar"))
    assert len(ablation.effects(at)) == 5 and len(ablation.variants(at)) == 8
    assert len(ablation.rivals(at, "diffuspec")) == 4 == len(ablation.RIVALS)


def test_a_part_can_win_tokens_and_lose_time():
    pair = ablation.effects(RUN)["search, fixed length"]
    tokens, speed = ablation.longer(RUN, pair), ablation.versus(RUN, pair)
    assert (tokens.ratio, tokens.verdict) == (1.5, "faster") and (tokens.base, tokens.rung) == ("neither", "search")
    assert speed.ratio == pytest.approx(4.5 / 3.5)
    slow = report(PLAIN, FOUR[0], decodes(SPECS[1], [2, 2], 5.0))
    assert ablation.versus(slow, pair).verdict == "slower" and ablation.longer(slow, pair).verdict == "faster"


def test_tokens_per_forward_are_paired_over_prompts_and_need_five():
    few = report(PLAIN[:4], FOUR[0][:4], FOUR[1][:4])
    assert ablation.longer(few, (SPECS[0], SPECS[1])).interval is None


def test_the_search_costs_what_drafting_takes_more_at_one_length():
    assert ablation.search_ms(RUN) == 250 and ablation.search_ms(report(PLAIN, FOUR[0])) is None
    assert ablation.round_ms(RUN, SPECS[1]) == {"draft": 500, "search": 250, "target": 1000, "overhead": 0}
    assert ablation.round_ms(RUN, SPECS[0])["search"] == 0 == ablation.round_ms(RUN, SPECS[2])["search"]
    assert ablation.reason(RUN, (SPECS[0], SPECS[1])) == "3.00 tokens a round in 1750.0 ms, against 2.00 in 1500.0 ms"


def test_depths_are_shares_of_rounds():
    own = report(PLAIN, decodes(SPECS[0], [1], .5) + decodes(SPECS[0], [1], .5, drafted=2))
    assert ablation.depths(own, SPECS[0]) == {"2": .5, "4": .5}


def test_claims_follow_the_interval_and_claims_without_their_methods_are_left_out():
    said = {line["claim (7B drafting for 32B, as published)"]: line["does it hold here"] for line in claims.lines(RUN)}
    assert said["the search lengthens what is accepted: 6.95 tokens over 6.05"] == "yes"
    assert said["it is faster than plain decoding: 3.08"] == "yes"
    assert said["the search is about 1 % of a round (0.8% in Figure 6)"] == "no"
    assert not any("SAMD" in claim or "denoising" in claim for claim in said)
    tie = report(PLAIN, decodes(SPECS[1], [2, 2], .5), decodes(SPECS[3], [2, 2], .5))
    assert claims.lines(tie)[0]["does it hold here"] == "not told apart"


def test_a_claim_on_one_family_is_measured_on_that_family():
    both, copied = SPECS[3], claims.LOOKED_UP
    at = report(PLAIN, FOUR[3], decodes(copied, [2, 2], 9.0), decodes("ar", [0] * 6, 0.0, family="rag", drafted=0),
                decodes(both, [2, 2], .5, family="rag"), decodes(copied, [2, 2], .1, family="rag"))
    lines = {line["claim (7B drafting for 32B, as published)"]: line for line in claims.lines(at)}
    found = lines["copying beats it in rag: 3.27 over 2.4"]
    assert found["does it hold here"] == "yes"
    assert found["a round, here"] == "3.00 tokens a round in 1100.0 ms, against 3.00 in 1500.0 ms"


def test_predictions_take_our_tokens_and_the_papers_round():
    two = report(PLAIN, *FOUR, decodes("specdiff", [1, 1, 1], .5), decodes("eagle", [1, 1, 1], .5))
    found = {line["method"]: line for line in claims.predictions(two)}
    assert list(found) == ["neither", "search", "controller", "both", "specdiff"]
    assert found["search"]["predicted for 7B + 32B"] == predicted(3.0)
    assert found["neither"]["predicted for 7B + 32B"] == predicted(2.0, searched=False)
    assert found["specdiff"]["forwards of the drafter"] == 2


def test_a_run_without_all_cells_is_refused_before_anything_is_measured(tmp_path):
    Folder(tmp_path, Plan(("ar", *SPECS))).finish(PLAIN, RUN.summary)
    assert ablation.read_or_measure(str(tmp_path))[1] == "A finished run."
    with pytest.raises(Refusal, match="lacks its cell of neither, search, controller"):
        ablation.read_or_measure("", str(tmp_path / "new"), methods="ar,diffuspec")
    assert CONTROLLER in ablation.grid(SPECS) and SEARCH in ablation.grid(SPECS)
