"""The ablation of DiffuSpec on runs made up by hand: which spec fills which cell, and what one side won of another."""

import pytest

from specdec_lib.analysis import diffuspec_ablation, diffuspec_claims
from specdec_lib.analysis.diffuspec_published import (
    BOTH,
    CELLS,
    CONTROLLER,
    NEITHER,
    SEARCH,
    published_speedup,
    published_speedup_at_best,
)
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.measure import Row
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal
from tests.bench.made_up import report

SPECS = ("diffusion-draft(depth=4)", "diffuspec(depth=4)", "diffuspec(weight=1)", "diffuspec")


def decodes(method, accepted, what, target=1.0, family="qa", drafted=4):
    rows = tuple(Row("d" * bool(drafted), drafted, kept, kept, 1 + kept, drafted, drafted + 1, 0.0, what, target, 0.0,
                     .1, (7,) * (1 + kept), ("d",) * kept + ("",), (2.0,) * (1 + kept)) for kept in accepted)
    tokens = tuple(token for row in rows for token in row.tokens)
    done = Outcome(tokens, 1.0, sum(row.seconds for row in rows), len(tokens), len(rows), rows)
    return [Decode(question, family, method, 0, 0, False, 10, done, "a", ("a",) * len(tokens)) for question in range(5)]


PLAIN = decodes("ar", [0] * 6, 0.0, drafted=0)
FOUR = [decodes(SPECS[0], [1, 1, 1], .5), decodes(SPECS[1], [2, 2], .75), decodes(SPECS[2], [1, 1, 1], .25),
        decodes(SPECS[3], [2, 2], .5)]
RUN = report(PLAIN, *FOUR)


def test_the_four_cells_are_told_by_their_specs_and_variants_fill_none():
    assert [diffuspec_ablation.cell_of(spec) for spec in SPECS] == list(CELLS)
    assert diffuspec_ablation.cell_of("diffuspec(depth=8,weight=1)") == NEITHER
    assert diffuspec_ablation.cell_of("diffuspec(weight=0.5)") == BOTH
    for other in (diffuspec_ablation.PRINTED, diffuspec_ablation.LESS, diffuspec_ablation.TREE, "ar",
                  "diffuspec(weight=0.2)", "diffuspec@fixed",
                  diffuspec_ablation.ALIGNED, diffuspec_ablation.BLOCK):
        assert diffuspec_ablation.cell_of(other) is None, other


def test_what_the_ablation_measures_fills_every_cell_and_holds_every_variant():
    specs = split_specs(diffuspec_ablation.METHODS)
    assert list(diffuspec_ablation.specs_by_cell(reversed(specs)).items()) == list(zip(CELLS, SPECS, strict=True))
    at = report(PLAIN, *(decodes(spec, [1, 1, 1], .5) for spec in specs if spec != "ar"))
    assert len(diffuspec_ablation.effects(at)) == 5
    assert len(diffuspec_ablation.variants(at)) == 16
    assert len(diffuspec_ablation.rivals(at, "diffuspec")) == 5 == len(diffuspec_ablation.RIVALS)


def test_a_part_can_win_tokens_and_lose_time():
    pair = diffuspec_ablation.effects(RUN)["search, fixed length"]
    tokens, speed = diffuspec_ablation.tokens_of_pair(RUN, pair), diffuspec_ablation.speed_of_pair(RUN, pair)
    assert (tokens.ratio, tokens.verdict) == (1.5, "faster")
    assert (tokens.base, tokens.other) == ("neither", "search")
    assert speed.ratio == pytest.approx(4.5 / 3.5)
    slow = report(PLAIN, FOUR[0], decodes(SPECS[1], [2, 2], 5.0))
    assert diffuspec_ablation.speed_of_pair(slow, pair).verdict == "slower"
    assert diffuspec_ablation.tokens_of_pair(slow, pair).verdict == "faster"


def test_the_conclusion_takes_each_part_beside_the_drafter_alone_and_both_beside_plain_decoding():
    parts, whole, where = diffuspec_ablation.conclusion_sentences(RUN)
    assert parts == ("Every part of DiffuSpec pays compared with the drafter alone: the path search, 1.29 times (1.29"
                     " to 1.29), and the length controller, 1.20 times (1.20 to 1.20), gain.")
    assert whole == ("DiffuSpec is faster than plain decoding: 2.00 times (2.00 to 2.00); the paper has 3.08 times, "
                     "with a 7B drafter for a 32B target.")
    assert where == "Measured on 5 prompts (tiny)."
    theirs = diffuspec_ablation.conclusion_sentences(report(PLAIN, *FOUR, decodes(diffuspec_ablation.PAPER, [2, 2], 2)))
    assert "2.00 times (2.00 to 2.00), and 1.00 times (1.00 to 1.00) with the paper's values;" in theirs[1]


def test_a_pair_is_told_by_speed_and_tokens_in_the_words_given():
    assert diffuspec_ablation.speed_and_tokens_text(RUN, ("ar", SPECS[0]), "the drafter", "nothing") == (
        "the drafter is faster than nothing: 1.33 times (1.33 to 1.33), with 2.00 times (2.00 to 2.00) its tokens per "
        "forward")


def test_the_means_of_the_papers_tables_differ_where_the_search_is_off():
    cells = diffuspec_ablation.printed_cells()
    assert cells["both"]["speed-up, mean of Table 4"] == pytest.approx(3.08, abs=.005)
    assert cells["neither"]["speed-up"] == 2.69
    assert cells["neither"]["speed-up, mean of Table 4"] == pytest.approx(2.43, abs=.005)


def test_tokens_per_forward_are_paired_over_prompts_and_need_five():
    few = report(PLAIN[:4], FOUR[0][:4], FOUR[1][:4])
    assert diffuspec_ablation.tokens_of_pair(few, (SPECS[0], SPECS[1])).interval is None


def test_the_search_costs_what_drafting_takes_more_at_one_length():
    assert diffuspec_ablation.search_ms(RUN) == diffuspec_ablation.search_ms(report(PLAIN, *FOUR[:2])) == 250
    assert diffuspec_ablation.search_ms(report(PLAIN, FOUR[0])) is None
    assert diffuspec_ablation.round_ms(RUN, SPECS[1]) == {"draft": 500, "search": 250, "target": 1000, "overhead": 0}
    for spec in (SPECS[0], SPECS[2]):              # without a search
        assert diffuspec_ablation.round_ms(RUN, spec)["search"] == 0
    assert diffuspec_ablation.pair_sentence(RUN, (SPECS[0], SPECS[1])) == (
        "3.00 tokens a round in 1750.0 ms, against 2.00 in 1500.0 ms")


def test_a_search_that_comes_out_below_zero_settles_no_claim():
    noisy = report(PLAIN, FOUR[0], decodes(SPECS[1], [2, 2], .25), *FOUR[2:])
    for run, answer in ((RUN, "no, without an interval"), (noisy, "not told: below zero, so less than its noise")):
        assert diffuspec_claims.price_prediction(run)[0]["does it hold here"] == answer


def test_acceptance_at_a_depth_is_told_with_the_share_of_drafts_that_get_there():
    at = report(PLAIN, *FOUR[:2])
    at.entries[SPECS[0]]["conditional_acceptance"] = [.5, .2, .1]
    at.entries[SPECS[1]]["conditional_acceptance"] = [.4, .25, .3, .3]
    assert diffuspec_ablation.depth_text(at) == (
        "At a fixed length the first token is accepted in 40% of the drafts with the search and in 50% without it. At"
        " depth 3 it is 30% against 10%, of the 10% and 10% of the drafts that get that deep.")
    at.entries[SPECS[0]]["conditional_acceptance"] = [.5, .2]
    assert diffuspec_ablation.depth_text(at) == "No draft of both cells got to depth 3."


def test_claims_follow_the_interval_and_claims_without_their_methods_are_left_out():
    said = {line["claim (7B drafting for 32B, as published)"]: line["does it hold here"]
            for line in diffuspec_claims.claim_table(RUN)}
    assert said["the search increases the tokens of a round: 6.95 over 6.05"] == "yes"
    assert said["it is faster than plain decoding: 3.08"] == "yes"
    assert said["the search is about 1 % of a round (0.8% in Figure 6)"] == "no, without an interval"
    assert not any("SAMD" in claim or "denoising" in claim for claim in said)
    tie = report(PLAIN, decodes(SPECS[1], [2, 2], .5), decodes(SPECS[3], [2, 2], .5))
    assert diffuspec_claims.claim_table(tie)[0]["does it hold here"] == "not told apart"


def test_a_claim_on_one_family_is_measured_on_that_family():
    both, copied = SPECS[3], diffuspec_claims.LOOKED_UP
    at = report(PLAIN, FOUR[3], decodes(copied, [2, 2], 9.0), decodes("ar", [0] * 6, 0.0, family="rag", drafted=0),
                decodes(both, [2, 2], .5, family="rag"), decodes(copied, [2, 2], .1, family="rag"))
    lines = {line["claim (7B drafting for 32B, as published)"]: line for line in diffuspec_claims.claim_table(at)}
    found = lines["copying is faster on rag: 3.27 over 2.4"]
    assert found["does it hold here"] == "yes"
    assert found["a round, here"] == "3.00 tokens a round in 1100.0 ms, against 3.00 in 1500.0 ms"


def test_predictions_take_our_tokens_and_the_papers_round():
    two = report(PLAIN, *FOUR, decodes("specdiff", [1, 1, 1], .5), decodes("eagle", [1, 1, 1], .5))
    found = {line["method"]: line for line in diffuspec_claims.prediction_table(two)}
    assert list(found) == ["neither", "search", "controller", "both", "specdiff"]
    assert found["search"]["predicted for 7B + 32B"] == published_speedup(3.0)
    assert found["neither"]["predicted for 7B + 32B"] == published_speedup(2.0, searched=False)
    assert found["specdiff"]["forwards of the drafter"] == 2
    assert found["neither"]["predicted, verification as cheap as one step"] == published_speedup_at_best(2, 1, False)
    assert found["controller"]["predicted for 7B + 32B"] == published_speedup(2.0, searched=False)


def test_a_warm_stream_and_a_method_with_another_part_fill_no_cell_and_stop_nothing():
    more = [decodes(name, [1, 1, 1], .5) for name in ("sam (warm)", "diffuspec(depth=3)@svip(h=0.3)")]
    at = report(PLAIN, *FOUR, *more)
    assert diffuspec_ablation.effects(at) == diffuspec_ablation.effects(RUN)
    assert diffuspec_claims.prediction_table(at) == diffuspec_claims.prediction_table(RUN)
    assert diffuspec_ablation.round_ms(at, "sam (warm)")["search"] == 0


def test_a_finished_run_is_read_and_one_without_all_cells_is_refused_before_anything_is_measured(tmp_path):
    RunFolder(tmp_path, Plan(("ar", *SPECS))).finish(PLAIN, RUN.summary)
    found, whence = diffuspec_ablation.read_ablation(str(tmp_path))
    assert found.entries == RUN.entries
    assert whence.startswith("Read from ")
    with pytest.raises(Refusal, match="lacks its cell of neither, search, controller"):
        diffuspec_ablation.read_ablation("", str(tmp_path / "new"), methods="ar,diffuspec")
    assert not (tmp_path / "new").exists()
    assert CONTROLLER in diffuspec_ablation.specs_by_cell(SPECS)
    assert SEARCH in diffuspec_ablation.specs_by_cell(SPECS)
