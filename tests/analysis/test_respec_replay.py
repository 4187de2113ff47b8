"""ReSpec's settings on one recorded answer: tokens are counted, seconds add up, and the rows name what they hold."""

import pytest

from specdec_lib.analysis import respec_replay
from specdec_lib.analysis.bench_report import load_report
from specdec_lib.analysis.paper_settings import paper_setting
from specdec_lib.analysis.respec_replay import AnswerReplays, Costs
from specdec_lib.cost.curves import CostCurve
from specdec_lib.models.replay import SHIPPED, load_recording
from specdec_lib.recordings.replay_method import predicted_rates
from specdec_lib.types import Refusal

COSTS = Costs(CostCurve((1, 8, 32), (256,), ((1.0, 1.2, 2.0),)), 0.1)
SHORTEST = "multi_turn"


@pytest.fixture(scope="module")
def answer():
    return AnswerReplays(load_recording(SHIPPED / f"{SHORTEST}.safetensors"), COSTS)


def test_the_four_settings_of_the_sliders_write_the_recorded_answer(answer):
    here, ours, paper, rival = answer.respec(3, theta=1.5, penalty=1.0, least=0.3, kept=4)
    assert [one.name for one in (here, ours, paper, rival)] == ["these sliders", "ours", "respec(paper)", "rival"]
    assert here.spec == "respec(theta=1.5, penalty=1.0, least=0.3, kept=4, counts=0.0)"
    assert ours.spec == "respec(counts=0.0)"
    assert rival.spec == "sam+eagle2(threshold=3)"
    assert all(one.session.tokens == answer.recording.tokens for one in (here, ours, paper, rival))
    assert here.tokens == len(here.session.output) / len(here.session.rounds)


def test_at_our_defaults_the_sliders_are_our_setting_and_a_low_threshold_copies_less(answer):
    defaults = {name: respec_replay.our_values()[name] for name in respec_replay.KNOBS}
    here, ours, *_ = answer.respec(**defaults)
    assert (here.tokens, here.speed) == (ours.tokens, ours.speed)

    def copied(one):
        return sum("feedback-retrieval" in turn.draft.source for turn in one.session.rounds)

    assert copied(answer.respec(**defaults | {"theta": 0.0})[0]) < copied(ours)


def test_the_replays_are_those_of_the_recordings_that_are_given(answer):
    found = respec_replay.answer_replays({"mine": answer.recording}, COSTS)
    assert found["mine"].recording is answer.recording
    assert "ngram" in found["mine"].shelf
    with pytest.raises(Refusal, match="no recording of the `family` 'qa'; there are: mine"):
        found["qa"]


def test_a_setting_is_decoded_once(answer):
    assert answer.session("respec") is answer.session("respec")


def test_a_replay_is_exact_up_to_the_recorded_sizes_and_refuses_what_was_not_recorded(answer):
    assert all(map(answer.exact, ("eagle2", "draft-model(depth=16)", "sam", "diffuspec")))
    longer = ("draft-model(depth=20)", "eagle2(nodes=60,price=0.0,depth=6,width=10)", "diffuspec(depth=20)")
    assert not any(map(answer.exact, longer))
    for spec in ("eagle2(sharpness=2.0)", "eagle2(text_tokens=False)", "respec(counts=1.5)"):
        assert not respec_replay.replayable(spec)
        with pytest.raises(Refusal, match="cannot be replayed: leave it out, or measure it"):
            answer.session(spec)


def test_the_seconds_of_the_rounds_add_up_to_the_predicted_speed(answer):
    session = answer.session("respec")
    ends = respec_replay.round_ends(session, COSTS)
    assert ends[-1][1] == len(session.output)
    plain = COSTS.curve(1) * len(session.output)
    assert plain / ends[-1][0] == pytest.approx(predicted_rates([session], *COSTS)["predicted speed"])
    assert respec_replay.written_by(session, COSTS, ends[4][0]) == 5
    assert respec_replay.written_by(session, COSTS, ends[4][0] * .999) == 4


def test_the_table_of_the_settings_names_the_evidence_of_the_papers_values(answer):
    values = {"theta": 0.5, "penalty": 2.0, "least": 0.1, "kept": 1}
    here, ours, paper, rival = respec_replay.settings_table(answer.respec(4, **values), 4, values)
    assert (here["theta"], here["kept"], here["match"]) == ("0.5", "1", "–")
    assert ours["theta"] == "5"
    assert (paper["theta"], paper["penalty"], paper["kept"]) == ("1.5 (second hand)", "1 (ours)", "–")
    assert (rival["theta"], rival["match"]) == ("–", "4")


def test_the_ladder_holds_every_method_of_the_run_and_replays_lossless_steps_alone(answer):
    report = load_report(SHIPPED.parent / "results" / "respec")
    steps = {"ar": "ar", "+ our threshold": "respec(least=0.3,counts=0.0)", "+ counts": "respec",
             "+ relaxation": "respec-relaxed",
             "respec+token-recycling": "respec+token-recycling", "sharp": "eagle2(sharpness=2.0)"}
    rows = {row["ablation step"]: row for row in respec_replay.ladder_rows(report, steps, [answer])}
    assert list(rows)[:len(steps) + 2] == [*steps, "trigger alone", "respec(paper)"]
    assert {*report.entries} <= {row["method"] for row in rows.values()}
    others = list(rows.values())[len(steps) + 2:]
    assert all(row["measured speed"] and row["replay"] == "none" for row in others)
    assert rows["ar"]["tokens per forward (replayed)"] == 1
    assert (rows["ar"]["lossless"], rows["+ relaxation"]["lossless"]) == ("yes", "no")
    assert rows["+ our threshold"]["measured speed"] == report.entries["respec(least=0.3,counts=0.0)"]["speedup"]
    for lossy in ("+ counts", "+ relaxation", "respec+token-recycling", "sharp"):
        assert (rows[lossy]["replay"], rows[lossy]["tokens per forward (replayed)"]) == ("none", None)
    assert rows["+ our threshold"]["replay"] == "exact"
    assert rows["respec(paper)"]["replay"] == "approximate"
    assert rows["trigger alone"]["measured speed"] == report.entries[respec_replay.ALONE_SPEC]["speedup"]
    assert rows["trigger alone"]["tokens per forward (replayed)"] > 1
    class Vague(AnswerReplays):
        def exact(self, spec):
            return False

    both = [answer, Vague(answer.recording, COSTS)]
    assert respec_replay.ladder_rows(report, {"ar": "ar"}, both)[0]["replay"] == "approximate"
    held = {paper_setting(spec): entry["speedup"] for spec, entry in report.entries.items()}
    assert rows["respec(paper)"]["measured speed"] == held.get("respec(paper)")
    assert rows["respec(paper)"]["tokens per forward (replayed)"] > 1
