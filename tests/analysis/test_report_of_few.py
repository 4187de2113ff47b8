"""The sentences of the report on a run of one prompt, one family, or lossy methods alone."""

from specdec_lib.analysis import report_tables, report_text
from tests.analysis.test_bench_report import FAST, PLAIN, one, report, row

LOOSE = [one("loose", q, [row(7, 1.0, accepted=3)]) for q in range(5)]
PEERS = [one("hf-generate", q, [row(7, 2.0)] * 4, peer=True) for q in range(5)]


def lossy_alone():
    at = report(*PLAIN, *LOOSE, *PEERS)
    at.entries["loose"]["lossless"] = False
    return at


def test_one_prompt_and_one_family_are_told_in_the_singular():
    at = report(*PLAIN[:1], *FAST[:1])
    at.summary["prompts"]["count"] = 1
    assert report_text.headline(at).startswith("On 1 prompt with tiny")
    assert report_text.equality_sentence(at) == "The one lossless output equals plain decoding's in every id."
    assert report_text.family_range_text(at, "fast") == "fast: 2.00 times on qa."


def test_a_run_without_lossless_methods_promises_and_compares_nothing():
    at = lossy_alone()
    assert "no output has to equal it" in report_text.equality_sentence(at)
    assert report_text.against_generate(at).endswith("our plain decoding is 2.00 times (2.00 to 2.00) as fast.")
    assert {(found["how it drafts"], found["why"]) for found in report_tables.advice(at)} == {
        ("not at all: no lossless method was faster", "the run has no other lossless method")}


def test_beside_lossy_methods_alone_plain_decoding_is_the_reference_of_quality():
    assert list(report_tables.quality_table(lossy_alone())) == ["ar", "loose"]
    assert report_tables.quality_table(report(*PLAIN, *FAST)) == {}


def test_a_draft_model_that_was_not_given_is_the_first_layers():
    at, drafted = (report(*PLAIN, one(name, 0, [row(7, 1.0)])) for name in ("sam", "draft-model(depth=2)"))
    for found in (at, drafted):
        found.summary["settings"]["draft"] = None
    assert report_text.draft_model_text(at) == "none: no method needs one"
    assert report_text.draft_model_text(drafted).endswith("the target's own first layers, untrained")


def test_the_output_shown_of_lossy_methods_alone_is_drafted():
    found, origins = report_tables.token_origins(lossy_alone())
    assert (found.method, origins) == ("loose", ["d", "d", "d", ""])


def test_the_conclusion_of_one_prompt_names_the_machine_and_the_warning_that_it_was_busy():
    at = report(*PLAIN[:1], *FAST[:1])
    at.summary["machine"] = {"processor": "Chip", "gpu": None}
    at.summary["settings"] |= {"warnings": ["The machine was busy: very.", "fast drafted in vain."],
                               "repeats": 2, "max_new_tokens": 8}
    assert report_text.conclusion_sentences(at) == [
        "On 1 prompt with tiny in bfloat16 on cpu (Chip), fast decoded 2.00 times as fast as plain decoding, without "
        "an interval, which needs five prompts.", "The one lossless output equals plain decoding's in every id.",
        "The machine was busy: very."]
    assert report_text.other_warnings(at) == ["fast drafted in vain."]
    assert report_text.run_text(at) == (
        "The run: 1 method beside plain decoding, at most 8 new tokens a turn, repeats: 2, decoded greedily.")


def test_the_conclusion_without_lossless_methods_names_the_lossy_one_and_promises_no_ids():
    first, second, third = report_text.conclusion_sentences(lossy_alone())
    assert first.endswith("no lossless method was measured beside plain decoding.")
    assert second.startswith("A lossy method, loose, which may write another text, decoded 4.00 times")
    assert third == "No lossless method ran beside plain decoding, so no output has to equal it."


def test_the_conclusion_of_plain_decoding_alone_has_no_empty_parts():
    alone = report(*PLAIN)
    assert (len(report_text.conclusion_sentences(alone)), alone.shown) == (2, ["ar"])
    assert report_text.run_text(alone) == "The run: 0 methods beside plain decoding, decoded greedily."
