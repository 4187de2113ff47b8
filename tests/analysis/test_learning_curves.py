"""Learning curves from made-up logs: what is read, what a fit that went on counts, what is refused."""

import json

import pytest

from specdec_lib.analysis.learning_curves import Look, keep_curves, load_curves, looks_of
from specdec_lib.types import Refusal


def look(tokens, held, watched, name="eagle"):
    rates = {kind: {name: {"tokens_per_target_forward": value}} for kind, value in (("held_out", held),
                                                                                   ("watched", watched))}
    return {"step": tokens // 100, "tokens": tokens, **rates}


LOG = [look(0, 1.2, 1.1), {"step": 1, "tokens": 100, "loss": 3.0}, look(1000, 1.8, 1.4), look(3000, 2.0, 1.5)]


def test_looks_are_the_measured_lines_and_count_the_tokens_of_the_fit_before():
    assert looks_of(LOG, "eagle") == (Look(0, 1.2, 1.1), Look(1000, 1.8, 1.4), Look(3000, 2.0, 1.5))
    assert [one.tokens for one in looks_of(LOG, "eagle", 500)] == [500, 1500, 3500]


@pytest.mark.parametrize("log", [[], LOG[:2], [{name: value for name, value in line.items() if name != "watched"}
                                              for line in LOG]])
def test_a_log_that_watched_no_answers_is_refused(log):
    with pytest.raises(Refusal, match="train with --watch"):
        looks_of(log, "eagle")


def test_what_is_kept_is_read_back_with_its_gain_and_points(tmp_path):
    out = tmp_path / "curves.json"
    made = {"command": "specdec train eagle", "tokens_before": 500}
    keep_curves({"eagle": LOG}, {"eagle": made}, out, {"prompts": 3})
    curve, = load_curves(out)
    assert (curve.name, curve.made["command"]) == ("eagle", "specdec train eagle")
    assert curve.gain == pytest.approx((3000, 0.8, 0.4))
    assert curve.points("watched") == [(0.0005, 1.1), (0.0015, 1.4), (0.0035, 1.5)]
    assert json.loads(out.read_text())["watched"] == {"prompts": 3}
    keep_curves({"longer": LOG}, {"longer": made | {"drafter": "eagle"}}, out, {})
    assert load_curves(out)[0].looks == curve.looks


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"runs": {"eagle": {"looks": [[1]], "made": {}}}}', '{"runs": 3}'])
def test_another_file_is_refused(text, tmp_path):
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(Refusal, match="holds no learning curves"):
        load_curves(tmp_path / "odd.json")
