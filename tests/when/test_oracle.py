"""The oracle on recordings made up by hand: what it drafts, what that costs, and that nobody is faster."""

import itertools
from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog, measure
from specdec_lib.cost import curves
from specdec_lib.dice import Dice
from specdec_lib.loop import begin, decode
from specdec_lib.models.replay import Recording, Replay
from specdec_lib.recordings.record import record
from specdec_lib.recordings.replay_method import assembled
from specdec_lib.scores import RowStats
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Budget, Kit, Method, Refusal
from specdec_lib.when.oracle import CARD, Oracle
from tests.worlds import PROMPT, kit

TEXT = (1, 2, 3, 4, 5, 6)
SAID = ((1, 9), (2, 3), (9, 9), (9, 9), (5,), ())                  # what the drafter says at each place of TEXT
CURVE = curves.CostCurve((1, 2, 3), (8,), ((1.0, 1.25, 1.5),))
ABOUT = {"vocab": 3, "end": [], "pieces": {}}


def by_hand(said=SAID, text=TEXT) -> Recording:
    drafts = tuple(map(deterministic_chain, said))
    row_stats = RowStats(torch.tensor(text)[:, None], torch.ones(len(text), 1), tuple(range(len(text))),
                         (0.0,) * len(text), (0.0,) * len(text))
    return Recording((7, *text), 1, row_stats, {"hand": {2: drafts}}, {}, {"vocab": 10, "end": [], "pieces": {}})


def oracle(recording=None, rule="kept", **values):
    return CARD.make(Kit(None, cost=CURVE, recording=recording or by_hand(), parts=catalog.make_part),
                     **({"drafter": "hand", "rule": rule, "longest": 2} | values))


@pytest.fixture(scope="module")
def recording():
    return record(PROMPT, kit(None), ["draft-model", "suffix-automaton"], 30, about=ABOUT)


def rounds(recording, when, drafter="draft-model"):
    world = kit(None, recording=recording)
    *_, last = decode(recording.tokens[:recording.prompt], Replay(recording), when,
                      world.part("recorded", drafter=drafter),
                      world.part("match"), max_new_tokens=len(recording.output))
    return last


def test_it_drafts_exactly_what_would_be_kept():
    assert oracle().kept == oracle().lengths == (1, 2, 0, 0, 1, 0)
    told = measure.rows(rounds(by_hand(), oracle(), "hand"))
    assert [(row.drafted, row.accepted) for row in told] == [(1, 1), (0, 0), (0, 0), (1, 1)]


def test_of_a_real_drafter_nothing_is_wasted_and_nothing_that_would_be_kept_is_left(recording):
    when = CARD.make(kit(None, recording=recording), drafter="draft-model")
    told = rounds(recording, when)
    assert told.tokens == recording.tokens
    longest = kit(None, recording=recording).part("recorded", drafter="draft-model")
    place = 0
    for row in measure.rows(told):
        here = begin(recording.tokens[:recording.prompt + place], len(recording.output) - place)
        full = longest(here, Budget(16).within(here), NO_DICE).tokens
        right = next((i for i, pair in enumerate(zip(full, recording.output[place:], strict=False))
                      if pair[0] != pair[1]),
                     len(full))
        assert row.drafted == row.accepted == right
        place += row.emitted


def test_the_quickest_lengths_give_a_token_up_for_the_better_draft_behind_it():
    assert oracle(rule="quickest").lengths[0] == 0
    assert oracle().lengths[0] == 1
    spent = {rule: sum(CURVE(row.width) + .1 * row.drafted for row in measure.rows(
        rounds(by_hand(), oracle(rule=rule), "hand"))) for rule in ("kept", "quickest")}
    assert spent["kept"] == pytest.approx(1.35 + 1.0 + 1.0 + 1.35)         # 1 2 | 3 | 4 | 5 6
    assert spent["quickest"] == pytest.approx(1.0 + 1.7 + 1.35)            # 1 | 2 3 4 | 5 6


def test_no_choice_of_lengths_is_quicker_than_the_quickest():
    for price, block in ((0.0, 0.0), (.1, 0.0), (.4, 0.0), (1.0, 0.0), (0.0, .3), (.1, .6)):
        best = oracle(rule="quickest", per_token=price, per_block=block)
        ways = itertools.product(range(3), repeat=6)
        spent = [written(best, way) for way in ways]
        assert written(best, best.lengths) == pytest.approx(min(spent))


def written(seer: Oracle, lengths) -> float:
    """What these lengths cost to the end of the text."""
    place, spent = 0, 0.0
    while place < len(TEXT):
        offer = seer.offer(lengths[place], place)
        place, spent = place + offer.tokens, spent + offer.ms
    return spent


def test_where_drafting_is_dear_the_quickest_draft_nothing():
    assert set(oracle(rule="quickest", per_token=2.0).lengths) == {0}
    assert set(oracle(per_token=2.0).lengths) > {0}


def test_asked_twice_in_any_order_it_answers_the_same_and_where_the_text_ends_it_drafts_nothing():
    here = [begin(by_hand().tokens[:n], 9) for n in range(1, 8)]
    forth = [oracle()(one, Dice(1)) for one in here]
    used = oracle()
    assert [used(one, Dice(1)) for one in here[::-1]][::-1] == forth
    assert forth[-1] == Budget(0)


@pytest.mark.parametrize("tokens", [(8,), (7, 2), (7, 1, 2, 3, 4, 5, 6, 1)], ids=str)
def test_off_the_recorded_text_it_is_refused(tokens):
    with pytest.raises(Refusal, match="not the beginning of it"):
        oracle()(begin(tokens, 9), NO_DICE)


def test_without_a_recording_it_is_refused_and_listed_as_missing_it():
    assert catalog.missing(CARD, kit()) == ["recording"]
    with pytest.raises(Refusal, match="oracle cannot be made: recording is missing"):
        catalog.build("draft-model@oracle", kit())
    with pytest.raises(Refusal, match="recordings only"):
        CARD.make(kit())


def test_a_method_is_told_with_it_and_asks_for_the_drafter_that_was_named(recording):
    for name in ("draft-model", "suffix-automaton"):
        method = assembled(f"draft-model@oracle(drafter={name!r})", recording, CURVE)
        assert isinstance(method, Method)
        assert method.when.drafts.drafter == name


@pytest.mark.parametrize("wrong", [{"rule": "best"}, {"longest": -1}, {"per_token": -1}, {"per_block": -1}], ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal):
        oracle(**wrong)
    with pytest.raises(Refusal, match="cost curve"):
        replace(oracle(), rule="quickest", seconds=None)
