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


def test_the_output_shown_of_lossy_methods_alone_is_drafted():
    found, origins = report_tables.token_origins(lossy_alone())
    assert (found.method, origins) == ("loose", ["d", "d", "d", ""])
