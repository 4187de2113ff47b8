"""A course of recorded texts: what would be kept, where rules stop, and what an oracle leaves to be won."""

import pytest
import torch

from specdec_lib import catalog, measure
from specdec_lib.analysis.length_replay import LengthReplay, ReplayedRound, held_out_table, stop_length
from specdec_lib.cost import curves
from specdec_lib.dice import Dice
from specdec_lib.models.replay import Recording
from specdec_lib.recordings.record import record
from specdec_lib.scores import RowStats
from specdec_lib.trees import deterministic_chain, prune
from specdec_lib.types import Budget, Refusal
from specdec_lib.when.adaedl import AdaEdl
from specdec_lib.when.confidence import BelowConfidence, Confidence
from specdec_lib.when.entropy_trigger import last_entropies
from specdec_lib.when.fixed import Fixed
from specdec_lib.when.heuristic import Heuristic
from tests.worlds import PROMPT, kit

CURVE = curves.CostCurve((1, 4, 9), (8,), ((1.0, 1.2, 2.0),))
ABOUT = {"vocab": 3, "end": [], "pieces": {}}


@pytest.fixture(scope="module")
def course():
    recordings = {"one": record(PROMPT, kit(None), ["draft-model"], 30, about=ABOUT),
                  "two": record((2, 1), kit(None), ["draft-model"], 12, about=ABOUT)}
    return LengthReplay(recordings, "draft-model", 4, CURVE, .1)


def test_the_right_length_is_what_a_full_draft_keeps_there(course):
    for name, recording in course.recordings.items():
        assert len(course.accepted[name]) == len(recording.output)
        here = 0
        for row in measure.rows(course.decode_text(name, Fixed(4))):
            assert row.accepted == course.accepted[name][here]
            here += row.emitted
    assert {0, 1} <= set(course.accepted["one"])      # the target goes 0 1 2 0, the drafter knows one step of it


@pytest.mark.parametrize("threshold", [0.0, .45, .55, 1.0])
def test_rounds_worked_out_from_places_are_those_of_a_decode(course, threshold):
    for name in course.recordings:
        rows = measure.rows(course.decode_text(name, Confidence(4, threshold)))
        lengths = course.lengths(name, BelowConfidence(threshold))
        assert course.rounds(name, lengths) == [(row.drafted, row.accepted) for row in rows]
    assert course.under(BelowConfidence(threshold)) == course.policy_outcome(Confidence(4, threshold))


@pytest.mark.parametrize("when", [AdaEdl(4, start=.7, step=.9), Heuristic(2, cap=4), Fixed(4, rate=.5)], ids=str)
def test_a_walk_takes_the_rounds_of_a_decode(course, when):
    for name in course.recordings:
        walked, told = course.walk_text(name, when, Dice(3)), course.decode_text(name, when, Dice(3))
        assert [(r.budget, r.draft, r.verdict) for r in walked.rounds] == [
            (r.budget, r.draft, r.verdict) for r in told.rounds]
        assert walked.tokens == told.tokens


def test_a_policy_that_reads_scores_is_refused_in_a_walk(course):
    with pytest.raises(Refusal, match="no entropy: decode_text"):
        course.policy_outcome(lambda session, dice: Budget(len(last_entropies(session, 1))))


def test_fixed_depths_need_no_rule(course):
    for depth in range(5):
        assert course.under(None, depth) == course.policy_outcome(Fixed(depth))


def test_the_length_under_a_rule_is_that_of_the_pruned_chain(course):
    for chain in course.chains["one"]:
        for threshold in (.0, .5, .6, 1.0):
            rule = BelowConfidence(threshold)
            assert stop_length(chain, rule) == len(prune(chain, Budget(4, stop=rule)))


def test_the_oracle_drafts_nothing_in_vain_and_no_rule_is_faster(course):
    assert course.oracle.drafted == course.oracle.kept <= course.under(None).kept
    assert course.oracle.regret == 0
    for found in [course.under(None, depth) for depth in range(5)] + [course.under(BelowConfidence(x))
                                                                      for x in (.4, .5, .6)]:
        assert found.regret > 0
    seer = course.policy_outcome(lambda session, dice: Budget(course.quickest[session.id][len(session.output)]))
    assert seer == course.oracle


def test_where_drafting_is_dear_the_oracle_drafts_nothing(course):
    dear = LengthReplay(course.recordings, "draft-model", 4, CURVE, 2.0)
    assert dear.oracle.drafted == 0
    assert dear.oracle.speed == pytest.approx(1)


def test_regret_is_the_predicted_time_beyond_the_oracles(course):
    rows = [row for name in course.recordings for row in measure.rows(course.decode_text(name, Fixed(2)))]
    tokens, spent = sum(row.emitted for row in rows), sum(CURVE(row.width) + .1 * row.depth for row in rows)
    found = course.under(None, 2)
    assert found.speed == pytest.approx(tokens / spent)
    assert found.regret == pytest.approx(course.oracle.speed * spent / tokens - 1)
    assert found.regret > 0


def test_regret_by_hand():
    # at the three places the drafter says 1 9, 9 and nothing, the text is 1 2 3; forwards cost 10, 12, 14 by width
    said, row_stats = tuple(map(deterministic_chain, ((1, 9), (9,), ()))), RowStats(torch.ones(3, 1), torch.ones(3, 1))
    recording = Recording((7, 1, 2, 3), 1, row_stats, {"hand": {2: said}}, {}, ABOUT)
    tiny = LengthReplay({"one": recording}, "hand", 2, curves.CostCurve((1, 2, 3), (8,), ((10.0, 12.0, 14.0),)), .1)
    assert tiny.quickest == {"one": (1, 0, 0)}
    assert tiny.accepted == {"one": (1, 0, 0)}
    # one drafted and kept, then a plain round: 12 + 1 + 10 for three tokens that cost 30 plainly
    assert tiny.oracle[:4] == (1, 1, 2, 1.5)
    assert tiny.oracle.speed == pytest.approx(30 / 23)
    # a fixed 2 drafts 1 9, emits 1 2, and the last token is the verdict's own: 14 + 2 + 10
    two = tiny.under(None, 2)
    assert two[:4] == (2, 1, 2, 1.5)
    assert two.speed == pytest.approx(30 / 26)
    assert two.regret == pytest.approx(3 / 23)
    # a length of 0 is plain decoding
    assert tiny.under(None, 0).regret == pytest.approx(7 / 23)


def test_an_oracle_that_must_draft_by_hand(course):
    # the drafter says 1 2, 9 9, 9 and nothing, the text is 1 2 3 4; forwards cost 10, 12, 22 by width
    said = tuple(map(deterministic_chain, ((1, 2), (9, 9), (9,), ())))
    row_stats = RowStats(torch.ones(4, 1), torch.ones(4, 1))
    recording = Recording((7, 1, 2, 3, 4), 1, row_stats, {"hand": {2: said}}, {}, ABOUT)
    tiny = LengthReplay({"one": recording}, "hand", 2, curves.CostCurve((1, 2, 3), (8,), ((10.0, 12.0, 22.0),)), .1)
    assert tiny.oracle.speed == pytest.approx(40 / (13 + 10 + 10))       # one token, then nothing in vain
    # a first draft of two saves the token that the second round would have to waste: 24 + 10, not 13 + 13 + 10
    assert tiny.oracle_from(1)[:2] == (2, 2)
    assert tiny.oracle_from(1).speed == pytest.approx(40 / 34)
    assert tiny.oracle_from(0) == tiny.oracle
    assert course.oracle_from(4) == course.under(None)


WHENS = [name for name, card in catalog.parts()["when"].items() if not catalog.missing(card, kit(None))]


@pytest.mark.parametrize("price", [(0.0,), (.1, .3), (.6,)])
@pytest.mark.parametrize("name", WHENS)
def test_no_policy_of_the_catalogue_is_faster_than_the_oracle_under_the_same_prices(course, name, price):
    priced = LengthReplay(course.recordings, "draft-model", 4, CURVE, *price)
    for nodes in (2, 4):
        policy = kit(None, nodes=nodes).part(name)       # decoded: some read the target's scores
        found = priced.counted([priced.decode_text(text, policy, Dice(1).fork(text)) for text in priced.recordings])
        assert found.regret >= -1e-12
        assert found.tokens_per_forward >= 1


def test_to_begin_a_draft_has_a_price_of_its_own(course):
    some = [ReplayedRound(3, 2), ReplayedRound(0, 0)]
    flat, begun = (LengthReplay(course.recordings, "draft-model", 4, CURVE, .1, begin) for begin in (0.0, .5))
    forwards = (CURVE(4) + CURVE(1)) / CURVE(1)
    assert [one.total(some).speed for one in (flat, begun)] == pytest.approx(
        [4 / (forwards + .3), 4 / (forwards + .3 + .5)])


def test_the_part_of_the_catalogue_writes_the_oracles_lengths_and_what_would_be_kept_is_no_faster(course):
    for rule, regret in (("quickest", 0.0), ("kept", None)):
        sessions = [course.walk_text(name, kit(None, cost=CURVE, recording=recording).part(
            "oracle", drafter="draft-model", rule=rule, longest=4)) for name, recording in course.recordings.items()]
        found = course.counted(sessions)
        assert found.drafted == found.kept
        assert found.regret >= -1e-12
        assert regret is None or found == course.oracle


def test_a_text_is_judged_under_the_choice_that_is_best_on_the_others():
    recording = record(PROMPT, kit(None), ["draft-model"], 9, about=ABOUT)
    three = LengthReplay(dict.fromkeys("abc", recording), "draft-model", 4, CURVE, .1)
    good, bad = [ReplayedRound(2, 2)] * 3, [ReplayedRound(2, 0)] * 9
    rules = {"fixed": {1: dict.fromkeys("abc", [ReplayedRound(1, 1)] * 4)},      # slower than good, faster than bad
             "rule": {0.5: {"a": good, "b": bad, "c": bad}, 0.7: {"a": bad, "b": good, "c": good}}}
    chosen, found = three.held_out(rules["rule"])
    assert chosen == {"a": 0.7, "b": 0.5, "c": 0.5}                              # of equal ones the first
    assert found == three.total(bad + bad + bad)
    rows = held_out_table(three, rules, "fixed")
    assert rows["rule"]["best value"] == 0.7
    assert rows["rule"]["values held out"] == "0.5, 0.7"
    assert rows["rule"]["speed over fixed"] == pytest.approx(rows["rule"]["speed"] / rows["fixed"]["speed"])
    assert rows["rule"]["held-out speed over fixed"] < rows["rule"]["speed over fixed"]
    assert three.sample == "chosen and judged on the same 3 answers, 27 tokens"
    alone = LengthReplay({"a": recording}, "draft-model", 4, CURVE, .1)
    assert alone.held_out(rules["rule"]) == ({}, None)
    assert held_out_table(alone, rules, "fixed")["rule"]["held-out speed over fixed"] is None
    assert alone.sample == "chosen and judged on the same 1 answer, 9 tokens"


def test_judged_tokens_are_those_whose_predecessors_were_right(course):
    told = course.labelled_trails(["two"])
    assert sum(right for _, right in told) == sum(course.accepted["two"])
    assert sum(not right for _, right in told) == sum(
        right < len(chain) for right, chain in zip(course.accepted["two"], course.chains["two"], strict=True))
    assert len(course.labelled_trails()) > len(told)
    assert all(1 <= len(trail) <= 4 for trail, _ in told)


def test_a_course_without_depth_is_refused(course):
    with pytest.raises(Refusal, match="at least 1"):
        LengthReplay(course.recordings, "draft-model", 0, CURVE, .1)
    assert LengthReplay(course.recordings, "draft-model", 1, CURVE, .0).depth == 1


def test_a_walk_tells_the_memory_of_its_policy_when_it_is_over(course):
    name, world = next(iter(course.recordings)), kit(None, nodes=4)
    done = course.walk_text(name, world.part("tapout"), memory=world.memory)
    (arms,) = (value.value for value in world.memory.values())
    assert sum(arm.pulls for arm in arms.values()) == sum(len(one.draft) > 0 for one in done.rounds)
