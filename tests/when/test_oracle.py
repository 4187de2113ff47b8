"""The oracle on hand-made recordings: what it drafts, what that costs, and that no other lengths are faster."""

import itertools
from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog, measure
from specdec_lib.cards import Kit
from specdec_lib.cost import curves
from specdec_lib.dice import Dice
from specdec_lib.loop import begin, decode
from specdec_lib.models.replay import Recording, Replay
from specdec_lib.recordings.record import record
from specdec_lib.recordings.replay_method import assembled
from specdec_lib.scores import RowStats
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Budget, Method, Refusal
from specdec_lib.when.oracle import CARD, Oracle
from tests.worlds import PROMPT, kit

TEXT = (1, 2, 3, 4, 5, 6)
SAID = ((1, 9), (2, 3), (9, 9), (9, 9), (5,), ())                  # what the drafter proposes at each position of TEXT
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


def test_it_drafts_exactly_the_accepted_tokens():
    assert oracle().kept == oracle().lengths == (1, 2, 0, 0, 1, 0)
    rows = measure.rows(rounds(by_hand(), oracle(), "hand"))
    assert [(row.drafted, row.accepted) for row in rows] == [(1, 1), (0, 0), (0, 0), (1, 1)]


def test_with_a_real_drafter_no_token_is_rejected_and_no_acceptable_token_is_left_out(recording):
    when = CARD.make(kit(None, recording=recording), drafter="draft-model")
    last = rounds(recording, when)
    assert last.tokens == recording.tokens
    longest = kit(None, recording=recording).part("recorded", drafter="draft-model")
    position = 0
    for row in measure.rows(last):
        here = begin(recording.tokens[:recording.prompt + position], len(recording.output) - position)
        full = longest(here, Budget(16).within(here), NO_DICE).tokens
        pairs = zip(full, recording.output[position:], strict=False)
        right = next((i for i, (drafted, true) in enumerate(pairs) if drafted != true), len(full))
        assert row.drafted == row.accepted == right
        position += row.emitted


def test_the_quickest_lengths_skip_a_token_for_a_longer_draft_after_it():
    assert oracle(rule="quickest").lengths[0] == 0
    assert oracle().lengths[0] == 1
    spent = {rule: sum(CURVE(row.width) + .1 * row.drafted for row in measure.rows(
        rounds(by_hand(), oracle(rule=rule), "hand"))) for rule in ("kept", "quickest")}
    assert spent["kept"] == pytest.approx(1.35 + 1.0 + 1.0 + 1.35)         # 1 2 | 3 | 4 | 5 6
    assert spent["quickest"] == pytest.approx(1.0 + 1.7 + 1.35)            # 1 | 2 3 4 | 5 6


def test_no_choice_of_lengths_is_faster_than_the_quickest():
    for token, block in ((0.0, 0.0), (.1, 0.0), (.4, 0.0), (1.0, 0.0), (0.0, .3), (.1, .6)):
        best = oracle(rule="quickest", per_token=token, per_block=block)
        choices = itertools.product(range(3), repeat=6)
        spent = [total_cost(best, lengths) for lengths in choices]
        assert total_cost(best, best.lengths) == pytest.approx(min(spent))


def total_cost(policy: Oracle, lengths) -> float:
    """Cost of these lengths up to the end of the text."""
    position, spent = 0, 0.0
    while position < len(TEXT):
        offer = policy.offer(lengths[position], position)
        position, spent = position + offer.tokens, spent + offer.ms
    return spent


def test_with_expensive_drafting_the_quickest_lengths_are_zero():
    assert set(oracle(rule="quickest", per_token=2.0).lengths) == {0}
    assert set(oracle(per_token=2.0).lengths) > {0}


def test_the_length_depends_on_the_session_alone_and_is_zero_at_the_end():
    here = [begin(by_hand().tokens[:n], 9) for n in range(1, 8)]
    forth = [oracle()(one, Dice(1)) for one in here]
    used = oracle()
    assert [used(one, Dice(1)) for one in here[::-1]][::-1] == forth
    assert forth[-1] == Budget(0)


@pytest.mark.parametrize("tokens", [(8,), (7, 2), (7, 1, 2, 3, 4, 5, 6, 1)], ids=str)
def test_a_session_off_the_recorded_text_is_refused(tokens):
    with pytest.raises(Refusal, match="recorded answer"):
        oracle()(begin(tokens, 9), NO_DICE)


def test_without_a_recording_it_is_refused_and_listed_as_missing():
    assert catalog.missing(CARD, kit()) == ["recording"]
    with pytest.raises(Refusal, match="oracle.*recording"):
        catalog.build("draft-model@oracle", kit())
    with pytest.raises(Refusal, match="recordings only"):
        CARD.make(kit())


def test_a_replayed_method_uses_the_oracle_of_the_named_drafter(recording):
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


def test_without_a_curve_a_further_token_costs_the_kits_price():
    seconds = CARD.make(Kit(None, price=.5, recording=by_hand(), parts=catalog.make_part), drafter="hand").seconds
    assert [seconds(width) for width in (1, 2, 4)] == [1, 1.5, 2.5]
