"""A recorded answer told again: the same text, the rounds of the live method, and who spoke for whom."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.analysis import respec_ablation
from specdec_lib.cost import curves
from specdec_lib.loop import decode
from specdec_lib.recordings import replay_method
from specdec_lib.recordings.record import record
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal
from tests.worlds import PROMPT, network_kit

CURVE = curves.CostCurve((1, 4, 9), (8,), ((1.0, 1.2, 2.0),))      # four draft nodes
ABOUT = {"vocab": 3, "end": [], "pieces": {}}
SPECS = [spec for spec in split_specs(respec_ablation.METHODS) if "token-recycling" not in spec]


@pytest.fixture(scope="module")
def recording():
    return record(PROMPT, network_kit(None), ["eagle", "draft-model"], 40, about=ABOUT)


@pytest.mark.parametrize("spec", [*SPECS, "eagle@top-beta(tolerance=9.0)"])
def test_every_rung_tells_the_recorded_answer(recording, spec):
    assert replay_method.replay_method(spec, recording, CURVE).tokens == recording.tokens


def test_a_method_of_text_alone_takes_the_rounds_of_its_live_run(recording):
    kit = replace(network_kit(None), nodes=CURVE.nodes(), cost=CURVE)
    *_, live = decode(PROMPT, kit.target, *catalog.build("sam", kit), max_new_tokens=40)
    again = replay_method.replay_method("sam", recording, CURVE)
    assert [(r.draft.tokens, r.verdict) for r in again.rounds] == [(r.draft.tokens, r.verdict) for r in live.rounds]


def test_parts_know_the_recording(recording, monkeypatch):
    kits, build = [], catalog.build
    monkeypatch.setattr(catalog, "build", lambda spec, kit: kits.append(kit) or build(spec, kit))
    ended = replace(recording, about=ABOUT | {"end": [9]})
    assert replay_method.replay_method("eagle2", ended, CURVE, {"eagle": 5}).end == {9}
    [kit] = kits
    assert (kit.facts.end, kit.facts.vocab, kit.cost, kit.checkpoints["eagle"]) == ({9}, 3, CURVE, 5)
    assert kit.recording is ended


def test_a_drafter_that_was_not_recorded_is_spoken_for_and_named(recording):
    for asked in ("eagle", "eagle2"):
        assert replay_method.model_drafter(recording, asked) == "eagle"
    assert replay_method.model_drafter(recording, "draft-model") == "draft-model"
    limits = set()
    session = replay_method.replay_method("eagle2", recording, CURVE, limits=limits)
    assert {name for r in session.rounds for name in r.draft.source} == {"eagle"}
    assert limits == {"eagle2"}
    with pytest.raises(Refusal, match="specdec record --drafters eagle2"):
        replay_method.model_drafter(replace(recording, drafts={"suffix-automaton": {}}), "eagle2")


def test_the_round_that_wrote_a_token_begins_at_or_before_it(recording):
    session = replay_method.replay_method("sam", recording, CURVE)
    for place in range(len(session.output)):
        round, start = replay_method.writing(session, place)
        assert round.verdict.tokens[place - start] == session.output[place]
    with pytest.raises(ValueError, match="no token 40"):
        replay_method.writing(session, 40)


def test_plain_decoding_is_predicted_at_one_and_a_models_levels_are_charged(recording):
    plain = replay_method.predicted_rates([replay_method.replay_method("ar", recording, CURVE)], CURVE, 9.0)
    assert plain == {"tokens per forward": 1.0, "predicted speed": 1.0}
    head, copies = ([replay_method.replay_method(spec, recording, CURVE)] for spec in ("eagle2", "sam"))
    dear, free = (replay_method.predicted_rates(head, CURVE, level) for level in (1, 0))
    assert dear["predicted speed"] < free["predicted speed"]
    assert replay_method.predicted_rates(copies, CURVE, 1.0) == replay_method.predicted_rates(copies, CURVE, 0.0)


def test_a_round_costs_the_curves_price_of_its_width(recording):
    session = replay_method.replay_method("sam", recording, CURVE)
    spent = sum(CURVE(len(round.draft) + 1) for round in session.rounds)
    assert replay_method.predicted_rates([session], CURVE, 0.0)["predicted speed"] == pytest.approx(40 / spent)
