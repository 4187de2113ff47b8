"""Tokens per forward against the speed ratio: by hand, on either side of it, and without a measurement."""

import pytest

from specdec_lib.analysis import ratio_ceiling as ceiling
from specdec_lib.types import Refusal
from tests.bench.made_up import decodes, report, turn


def rows(accepted, count=6):
    """Rounds that draft 8 tokens in 0.2 s beside a forward of 0.1 s: 4 draft steps a forward."""
    return [turn(accepted, accepted)._replace(ahead=8, branches=1, discarded=0, what=.2, target=.1, wall=.2)] * count


def run_of(double):
    return report(decodes("ar", *[turn(0, 0, target=.1)] * 6), decodes("pearl", *rows(1)), decodes("double", *double))


def test_the_ratio_is_that_of_one_token_a_draft_forward():
    assert ceiling.speed_ratio(run_of(rows(5))) == pytest.approx(4)
    with pytest.raises(Refusal, match="no drafted rounds of pearl"):
        ceiling.speed_ratio(report(decodes("ar", turn(0, 0))))


def test_prompts_above_the_ratio_are_counted():
    found = ceiling.ceiling_rows(report(run_of(rows(5)).decodes, decodes("sam", turn(2, 1))))
    assert list(found) == ["pearl", "double"]
    assert found["double"]["tokens per forward / ratio"] == pytest.approx(6 / 4)
    assert (found["double"]["prompts above the ratio"], found["pearl"]["prompts above the ratio"]) == (5, 0)
    assert found["double"]["best prompt"] == 6


def test_the_sentence_follows_the_numbers_or_says_how_to_measure(tmp_path, monkeypatch):
    assert ceiling.COMMAND in ceiling.ceiling_sentence(str(tmp_path))
    (tmp_path / "summary.json").write_text("{}")
    for accepted, said in ((5, "6.00 tokens per forward, above the speed ratio of 4.0"),
                           (2, "3.00 tokens per forward, not above the speed ratio of 4.0 (a forward over a draft step,"
                            " medians of pearl's rounds in this run)")):
        monkeypatch.setattr(ceiling, "load_report", lambda run, accepted=accepted: run_of(rows(accepted)))
        assert said in ceiling.ceiling_sentence(str(tmp_path))
    monkeypatch.setattr(ceiling, "load_report", lambda run: report(decodes("ar", turn(0, 0)),
                                                                   decodes("pearl", *rows(1))))
    assert "has no double" in ceiling.ceiling_sentence(str(tmp_path))


def test_the_short_sentence_takes_its_direction_from_the_numbers_and_is_empty_without_any(tmp_path, monkeypatch):
    assert ceiling.lifted_sentence(str(tmp_path)) == ""
    (tmp_path / "summary.json").write_text("{}")
    for accepted, said, more in ((5, "6.0", "more"), (2, "3.0", "fewer")):
        monkeypatch.setattr(ceiling, "load_report", lambda run, accepted=accepted: run_of(rows(accepted)))
        assert ceiling.lifted_sentence(str(tmp_path)) == (
            f"With retrieval double emits {more} tokens per target forward than the ceiling, the draft steps beside it:"
            f" {said} against 4.0.")
    monkeypatch.setattr(ceiling, "load_report", lambda run: report(decodes("ar", turn(0, 0))))
    assert ceiling.lifted_sentence(str(tmp_path)) == ""
