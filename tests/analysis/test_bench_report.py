"""The sentences of the report, from runs made up by hand."""

from dataclasses import replace

import pytest

from specdec_lib.analysis import bench_report, report_tables, report_text
from specdec_lib.bench import results, summary
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.measure import Row
from specdec_lib.types import Refusal


def row(token, target, accepted=0, margin=2.0):
    return Row("d" * bool(accepted), accepted, accepted, accepted, 1 + accepted, accepted, 1 + accepted, 0.0, 0.0,
               target, 0.0, 0.1, (token,) * (1 + accepted), ("d",) * accepted + ("",), (margin,) * (1 + accepted))


def one(method, question, rows, family="qa", peer=False):
    tokens = tuple(token for r in rows for token in r.tokens)
    seconds = sum(r.seconds for r in rows)
    return Decode(question, family, method, 0, 0, peer, 10,
                  Outcome(tokens, 1.0, seconds, len(tokens), len(rows), () if peer else tuple(rows)), "a b",
                  tuple(f"w{token}" for token in tokens))


def report(*entries, temperature=0.0, dtype="bfloat16"):
    about = {"target": {"name": "tiny", "device": "cpu", "dtype": dtype},
             "prompts": {"count": len({entry.question_id for entry in entries})},
             "settings": {"cost_curve": None, "temperature": temperature},
             "methods": summary.method_summaries(entries, {"fast": True, "slow": True}, None),
             "peers": summary.peer_summaries(entries)}
    return bench_report.Report(about, tuple(entries))


PLAIN = [one("ar", q, [row(7, 1.0)] * 4) for q in range(5)]
FAST = [one("fast", q, [row(7, 2.0, accepted=3)]) for q in range(5)]
SLOW = [one("slow", q, [row(7, 1.5)] * 4) for q in range(5)]
OTHER = [one("fast", q, [row(7, 1.0)] * 3 + [row(8, 1.0)]) for q in range(5)]


def test_families_that_a_kept_summary_left_out_are_measured_again():
    mixed = [one(method, q, rows, family) for method, rows in (("ar", [row(7, 1.0)] * 4), ("fast", [row(7, 2.0, 3)]))
             for q, family in enumerate(("qa", "qa", "rag"))]
    whole = report(*mixed)
    short = bench_report.Report({**whole.summary, "methods": {
        name: {key: value for key, value in entry.items() if key != "by_family"}
        for name, entry in whole.entries.items()}}, whole.decodes)
    assert bench_report.with_families(short).entries == whole.entries
    assert bench_report.with_families(short).families == ["qa", "rag"]
    assert bench_report.with_families(whole) is whole


def test_the_headline_says_faster_only_where_the_interval_lies_above_one():
    sure = report_text.headline(report(*PLAIN, *FAST))
    assert "fast decoded 2.00 times (2.00 to 2.00) as fast as plain decoding." in sure
    assert "no method was faster" in report_text.headline(report(*PLAIN, *SLOW))
    assert "without an interval" in report_text.headline(report(*PLAIN[:2], *FAST[:2]))
    assert report_text.headline(report(*PLAIN[:1], *FAST[:1])).startswith("On 1 prompt with")


def test_a_lossy_method_is_never_the_fastest_and_the_headline_says_so_where_it_is_faster():
    lossy = [one("loose", q, [row(7, 1.0, accepted=3)]) for q in range(5)]
    at = report(*PLAIN, *FAST, *lossy)
    at.entries["loose"]["lossless"] = False
    assert (at.fastest, at.lossy) == ("fast", ["loose"])
    assert "fast decoded 2.00 times" in report_text.headline(at)
    assert "A lossy method, loose, which may write another text, decoded 4.00 times" in report_text.headline(at)
    assert {one["take"] for one in report_tables.advice(at)} == {one["fastest here"] for one in report_tables.advice(
        at)} == {"fast"}
    alone = report(*PLAIN, *lossy)
    alone.entries["loose"]["lossless"] = False
    assert "no lossless method was measured beside plain decoding. A lossy method, loose" in report_text.headline(alone)
    both = report(*PLAIN, *SLOW, *lossy)
    both.entries["loose"]["lossless"] = False
    assert "no lossless method was faster than plain decoding. A lossy method, loose" in report_text.headline(both)
    assert report_text.headline(report(*PLAIN)).endswith("no method was measured beside plain decoding.")
    slow = report(*PLAIN, *FAST, *SLOW)
    slow.entries["slow"]["lossless"] = False
    assert "lossy" not in report_text.headline(slow)


def test_what_a_method_that_drafts_ahead_discards_is_its_reason():
    at = report(*PLAIN, *FAST)
    said = report_text.reason_text("fast", {**at.entries["fast"], "discarded_share": 0.4})
    assert said.startswith("40% of what it drafted ahead was discarded")
    assert report_text.reason_text("fast", {**at.entries["fast"], "time": "in parallel"}).endswith("which overlap")


def test_a_method_that_is_surely_faster_goes_before_one_that_only_looks_so():
    wild = [one("slow", q, [row(7, 0.01 if q else 3.0)] * 4) for q in range(5)]
    at = report(*PLAIN, *FAST, *wild)
    assert at.entries["slow"]["speedup_ci"][0] < 1
    assert at.fastest == "fast"


def named_report(**seconds):
    """Five prompts of four tokens by each method; `seconds` are those of a prompt, or a list of one for each prompt."""
    decodes = list(PLAIN)
    for name, took in seconds.items():
        each = took if isinstance(took, list) else [took] * 5
        decodes += [one(name, q, [row(7, each[q], accepted=3)]) for q in range(5)]
    return report(*decodes)


def advised(at):
    *_, found = report_tables.advice(at)
    return found["fastest here"], found["take"], found["why"]


def test_advice_takes_the_fastest_where_every_simpler_method_is_slower():
    qa, everything = report_tables.advice(report(*PLAIN, *FAST, *SLOW))
    assert qa["fastest here"] == qa["take"] == everything["fastest here"] == everything["take"] == "fast"
    assert everything["text"] == "all prompts"
    assert "75% of its tokens came from drafts" in qa["how it drafts"]
    assert qa["why"] == "every simpler method is slower; what it needs beside the target is not known here"
    assert advised(named_report(sam=2.0, eagle2=1.0)) == (
        "eagle2", "eagle2", "every simpler method is slower; it needs the checkpoint eagle beside the target")


def test_advice_takes_the_simplest_method_that_is_not_told_apart_from_the_fastest():
    close = [0.9, 1.3, 1.1, 1.2, 0.8]                                  # within the noise of one second a prompt
    assert advised(named_report(respec=1.0, eagle2=1.2, **{"sam+token-recycling": close})) == (
        "respec", "sam+token-recycling", "the simplest that is not told apart from respec, which is 1.06 times "
        "(0.82 to 1.28) as fast; it needs nothing beside the target")
    at = named_report(respec=1.0, eagle2=close, **{"sam+token-recycling": 1.2})
    assert advised(at)[:2] == ("respec", "eagle2")
    at = named_report(eagle2=1.2, **{"draft-model": 1.0})
    assert advised(at)[2].endswith("needs a draft model beside the target")


def test_what_is_not_told_apart_from_plain_decoding_is_not_taken_where_the_fastest_is():
    wild = [0.4, 0.5, 0.4, 9.0, 0.5]                                   # 1.85 times plain decoding, and maybe slower
    at = named_report(respec=2.0, sam=wild)
    assert at.entries["sam"]["speedup_ci"][0] < 1
    assert advised(at) == ("respec", "respec", "every simpler method is slower, or not told apart from plain decoding; "
                           "it needs the checkpoint eagle beside the target")
    alone = named_report(sam=wild)
    assert advised(alone)[:2] == ("sam", "ar")
    assert "it needs nothing beside the target" in advised(alone)[2]


def test_simplicity_counts_models_before_parts_and_plain_decoding_is_the_simplest():
    order = ["ar", "sam", "sam+token-recycling", "eagle2", "sam+eagle2", "no such method"]
    assert sorted(reversed(order), key=report_text.simplicity) == order
    assert report_text.simplicity("sam (warm)") == report_text.simplicity("sam")
    assert report_text.models_needed("diffuspec(depth=4)") == ["diffusion-lm"]


def test_advice_is_plain_decoding_where_no_draft_pays_and_nothing_with_few_prompts():
    few = report_tables.fastest_for(report(*PLAIN[:3], *SLOW[:3]), "qa")
    assert few["fastest here"] == "ar"
    assert few["how it drafts"] == "not at all: no lossless method was faster"
    assert (few["take"], few["why"]) == ("–", "too few prompts to say: an interval needs five")
    assert advised(report(*PLAIN, *SLOW)) == ("ar", "ar", "the fastest, and no method of the run is simpler")
    assert advised(report(*PLAIN)) == ("ar", "ar", "the run has no other lossless method")


def test_what_a_run_does_not_hold_is_named():
    said = report_text.absent_text(named_report(sam=1.0, eagle2=1.0))
    assert ", sam+eagle2," in said
    assert not {"sam", "eagle2", "ar", "respec-relaxed"} & set(said.rpartition(": ")[2].rstrip(".").split(", "))


def test_a_method_is_told_with_the_families_on_which_it_gains_most_and_least():
    other = [one("ar", q, [row(7, 1.0)] * 4, "rag") for q in (8, 9)] + [one("slow", q, [row(7, 0.5)] * 4, "rag")
                                                                        for q in (8, 9)]
    assert report_text.family_range_text(report(*PLAIN, *SLOW, *other), "slow") == (
        "slow: 2.00 times on rag, 0.67 times on qa; below 1 in 1 of 2 families.")


def test_a_lossy_method_is_no_surer_than_a_lossless_one():
    def lossy(prompts, costs):
        run = report(*PLAIN[:prompts], *(one("loose", q, [row(7, costs[q], accepted=3)]) for q in range(prompts)))
        run.entries["loose"]["lossless"] = False
        return report_text.headline(run)

    assert lossy(5, [1.0] * 5).endswith("decoded 4.00 times (4.00 to 4.00) as fast.")
    assert lossy(1, [1.0]).endswith("decoded 4.00 times as fast, without an interval, which needs five prompts.")
    assert lossy(5, [1.0, 9.0, 1.0, 1.0, 5.0]).endswith("as fast, but the interval includes 1: it may be no faster.")


def test_differences_name_both_tokens_and_the_margin():
    rows = bench_report.first_differences(report(*PLAIN, *OTHER))
    assert len(rows) == 5
    assert rows[0] == {"method": "fast", "prompt": 0, "turn": 1, "token": 4, "plain": "'w7'", "here": "'w8'",
                       "margin (logits)": 2.0}


def test_a_difference_in_a_later_repeat_names_the_tokens_of_that_repeat():
    again = [replace(each, repeat=1) for each in (*PLAIN[:1], *OTHER[:1])]
    same = [one("fast", 0, [row(7, 1.0)] * 4)]
    rows = bench_report.first_differences(report(*PLAIN[:1], *same, *again))
    assert [(found["token"], found["plain"], found["here"]) for found in rows] == [(4, "'w7'", "'w8'")]


def test_equality_is_a_promise_of_greedy_lossless_methods_and_a_wide_margin_is_named():
    assert "All 5 outputs" in report_text.equality_sentence(report(*PLAIN, *FAST))
    assert "too wide for a tie in bfloat16" in report_text.equality_sentence(report(*PLAIN, *OTHER))
    close = [one("ar", q, [row(7, 1.0, margin=0.01)] * 4) for q in range(5)]
    assert "near tie in bfloat16" in report_text.equality_sentence(report(*close, *OTHER))
    assert "too wide for a tie in float32" in report_text.equality_sentence(report(*close, *OTHER, dtype="float32"))
    assert "sampled" in report_text.equality_sentence(report(*PLAIN, *OTHER, temperature=1.0))
    longer = [one("fast", q, [row(7, 1.0)] * 5) for q in range(5)]
    assert "goes on where the other ends: investigate it" in report_text.equality_sentence(report(*PLAIN, *longer))
    assert "No lossless method ran beside plain decoding" in report_text.equality_sentence(report(*PLAIN))


def test_where_rows_do_not_depend_on_each_other_no_difference_is_forgiven():
    close = [one("ar", q, [row(7, 1.0, margin=0.01)] * 4) for q in range(5)]
    at, equal = report(*close, *OTHER), report(*PLAIN, *FAST)
    for run in (at, equal):
        run.summary["target"]["batch_invariant"] = True
    assert "investigate" in report_text.equality_sentence(at)
    assert "equal plain decoding's in every id, and must" in report_text.equality_sentence(equal)


def test_the_node_budget_is_told_with_its_range_where_it_was_refitted():
    assert report_text.node_budget_text({"nodes": 5}) == "The node budget was 5 for every prompt"
    said = report_text.node_budget_text({"nodes": 5, "refitted_nodes": [5, 8, 3, 4]})
    assert "began at 5, lay between 3 and 8, and ended at 4" in said
    assert "stayed at 5" in report_text.node_budget_text({"nodes": 5, "refitted_nodes": [5, 5]})


def test_the_output_shown_is_the_one_with_the_most_drafted_tokens():
    longer = one("fast", 9, [row(7, 2.0, accepted=3)] * 2)
    at = report(*PLAIN, one("ar", 9, [row(7, 1.0)] * 8), *FAST, longer)
    found, origins = report_tables.token_origins(at)
    assert found.question_id == 9
    assert origins == ["d", "d", "d", ""] * 2
    assert report_tables.token_origins(at, "fast", "3")[0].question_id == 3
    with pytest.raises(Refusal, match="no output of fast for prompt 77"):
        report_tables.token_origins(at, "fast", "77")


def test_only_a_methods_own_entry_is_a_plain_part():
    assert bench_report.plain_part("eagle(depth=3)") == ("eagle", {"depth": 3})
    for name in ("sam (warm)", "eagle@tapout (warm, shuffled)", "eagle(depth=3)@svip(h=0.3)"):
        assert bench_report.plain_part(name) is None


def test_acceptance_is_shown_as_deep_as_enough_rounds_reached():
    long = [one("fast", q, [row(7, 2.0, accepted=3)] * (q < 2) + [row(7, 2.0, accepted=1)] * 2) for q in range(5)]
    at = report(*PLAIN, *long)
    assert len(at.entries["fast"]["conditional_acceptance"]) == 3
    assert report_tables.acceptance_by_depth(at, "fast", 12) == [1.0]              # 12 rounds, two of them deeper
    assert report_tables.acceptance_by_depth(at, "fast", 2) == [1.0, 1.0, 1.0]
    assert report_tables.acceptance_by_depth(at, "fast", 99) == [1.0]
    assert report_tables.acceptance_by_depth(at, "ar") == []


def test_peers_stand_beside_plain_decoding_and_the_fastest():
    peer = [one("hf-generate", q, [row(7, 2.0)] * 4, peer=True) for q in range(5)]
    at = report(*PLAIN, *FAST, *peer)
    assert list(report_tables.peer_table(at)) == ["hf-generate", "ar", "fast"]
    assert "our plain decoding is 2.00 times (2.00 to 2.00) as fast, and fast 4.00" in report_text.against_generate(at)
    assert "transformers computed" not in report_text.against_generate(at)
    at.summary["target"] |= {"dtype": "bfloat16", "dtype_of_transformers": "float32"}
    assert report_text.against_generate(at).endswith("transformers computed in float32, our decoder in bfloat16.")
    assert "--peers hf-generate" in report_text.against_generate(report(*PLAIN))


def test_what_was_written_is_read_back_and_other_folders_are_refused(tmp_path):
    folder = RunFolder(tmp_path, Plan(("ar",)))
    at = report(*PLAIN, *FAST)
    folder.finish(at.decodes, at.summary)
    assert bench_report.load_report(tmp_path).decodes == at.decodes == tuple(results.read_results(str(tmp_path)))
    with pytest.raises(Refusal, match="no finished run"):
        bench_report.load_report(tmp_path / "elsewhere")


@pytest.mark.parametrize("text", ["{}", "[]", '{"methods": [1]}', '{"methods": {}, "settings": 1}', "[" * 100_000])
def test_a_summary_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(Refusal, match="summary.json|no finished run"):
        bench_report.load_report(tmp_path)


def test_every_lossy_method_carries_four_gates_with_intervals_behind_the_fastest_lossless_one():
    loose = [one("loose", q, [row(7, 2.0, accepted=1)._replace(nll=.4)] * 2) for q in range(5)]
    at = report(*PLAIN, *SLOW, *FAST, *loose)
    assert report_tables.quality_table(at) == {}                            # nothing here says that it is lossy
    at.entries["loose"]["lossless"] = False
    found = report_tables.quality_table(at)
    assert list(found) == ["fast", "loose"]
    assert len(found["loose"]) == 9
    assert found["loose"]["target NLL (nats per token)"] == "0.200 (0.200 to 0.200)"
    assert found["loose"]["target NLL (nats per token), minus plain decoding's"] == "+0.100 (+0.100 to +0.100)"
    assert found["loose"]["overlap with ar"] == "1.000 (1.000 to 1.000)"
    assert found["loose"]["reference score, minus plain decoding's"] == "–"


def test_a_run_from_before_there_were_changes_of_quality_has_them_all_the_same():
    at = report(*PLAIN, *FAST)
    for entry in at.entries.values():
        del entry["quality_change"], entry["quality_change_ci"]
    line = report_tables.quality_table(at, ["fast"])["fast"]
    assert line["overlap with ar, minus plain decoding's"] == "+0.000 (+0.000 to +0.000)"
