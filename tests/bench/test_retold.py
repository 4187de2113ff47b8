"""A recorded answer told again: the same text, the very rounds of the live method, and who spoke for whom."""

import pytest

from specdec_lib import catalog, cost
from specdec_lib.bench import ladder, retold
from specdec_lib.bench.record import record
from specdec_lib.loop import decode
from specdec_lib.models.replay import Recording
from specdec_lib.types import Refusal
from tests.worlds import PROMPT, network_kit

CURVE = cost.CostCurve((1, 4, 9), (8,), ((1.0, 1.2, 2.0),))        # four draft nodes
ABOUT = {"vocab": 3, "end": [], "pieces": {}}
SPECS = [spec for spec in catalog.split(ladder.METHODS) if "token-recycling" not in spec]


@pytest.fixture(scope="module")
def tape():
    return record(PROMPT, network_kit(None), ["eagle", "draft-model"], 40, about=ABOUT)


@pytest.mark.parametrize("spec", SPECS)
def test_every_rung_tells_the_recorded_answer(tape, spec):
    assert retold.told(spec, tape, CURVE).tokens == tape.tokens


def test_a_method_that_lives_on_text_alone_takes_the_rounds_of_its_live_run(tape):
    from dataclasses import replace

    kit = replace(network_kit(None), nodes=CURVE.nodes(), cost=CURVE)
    *_, live = decode(PROMPT, kit.target, *catalog.build("sam", kit), max_new_tokens=40)
    again = retold.told("sam", tape, CURVE)
    assert [(r.draft.tokens, r.verdict) for r in again.rounds] == [(r.draft.tokens, r.verdict) for r in live.rounds]


def test_a_drafter_that_was_not_recorded_is_spoken_for_and_named(tape):
    assert retold.speaker(tape, "eagle") == retold.speaker(tape, "eagle2") == "eagle"
    assert retold.speaker(tape, "draft-model") == "draft-model"
    sources = {name for r in retold.told("eagle2", tape, CURVE).rounds for name in r.draft.source}
    assert sources == {"eagle"}
    with pytest.raises(Refusal, match="specdec record --drafters eagle2"):
        retold.speaker(Recording(tape.tokens, tape.prompt, tape.brief, {"suffix-automaton": {}}, {}), "eagle2")


def test_the_round_that_wrote_a_token_begins_at_or_before_it(tape):
    session = retold.told("sam", tape, CURVE)
    for place in range(len(session.output)):
        round, start = retold.writing(session, place)
        assert round.verdict.tokens[place - start] == session.output[place]
    with pytest.raises(ValueError, match="no token 40"):
        retold.writing(session, 40)


def test_plain_decoding_is_predicted_at_one_and_a_models_levels_are_charged(tape):
    plain = retold.predicted([retold.told("ar", tape, CURVE)], CURVE, 9.0)
    assert plain == {"tokens per forward": 1.0, "predicted speed": 1.0}
    head, copies = ([retold.told(spec, tape, CURVE)] for spec in ("eagle2", "sam"))
    assert retold.predicted(head, CURVE, 1.0)["predicted speed"] < retold.predicted(head, CURVE, 0.0)["predicted speed"]
    assert retold.predicted(copies, CURVE, 1.0) == retold.predicted(copies, CURVE, 0.0)


def test_a_round_costs_the_curves_price_of_its_width(tape):
    session = retold.told("sam", tape, CURVE)
    spent = sum(CURVE(len(round.draft) + 1) for round in session.rounds)
    assert retold.predicted([session], CURVE, 0.0)["predicted speed"] == pytest.approx(40 / spent)
