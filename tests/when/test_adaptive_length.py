"""DiffuSpec's length controller, worked by hand: the printed rule only falls, the corrected one falls and rises."""

from dataclasses import replace

import pytest

from specdec_lib.loop import begin
from specdec_lib.scores import RowStats
from specdec_lib.trees import deterministic_chain, with_notes
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal, Round, Verdict
from specdec_lib.when.adaptive_length import CARD, AdaptiveLength, AverageLengths, round_lengths
from tests.worlds import kit

END = 99
PAPER = AdaptiveLength(20, 30, 10, 0.5, "printed")


def round_of(draft: Draft, accepted: int) -> Round:
    return Round(Budget(len(draft)), draft, RowStats(None, None), Verdict.of(draft, tuple(range(accepted)), 7), ())


def after(*rounds: tuple[int, int]):
    """A session whose rounds generated and accepted these numbers of tokens."""
    session = begin((1, 2), 5000, end=frozenset({END}))
    for drafted, accepted in rounds:
        session = session.after(round_of(deterministic_chain(range(drafted)) if drafted else Draft(), accepted))
    return session


def length(policy, *rounds: tuple[int, int]) -> int:
    return policy(after(*rounds), NO_DICE).depth


def lengths(policy, *accepted: int) -> list[int]:
    """The lengths of successive budgets, where each draft fills its budget and so much of it is accepted, if it can."""
    rounds, out = [], [length(policy)]
    for wanted in accepted:
        rounds.append((out[-1], min(wanted, out[-1])))
        out.append(length(policy, *rounds))
    return out


def test_the_printed_rule_follows_the_equations_by_hand():
    # averages of generated and accepted: 15, 15 -> 15 + 10; 20, 20 -> 20 + 10; 25, 20 -> 25; 25, 17.5 -> 25
    assert lengths(PAPER, 30, 25, 20, 15) == [30, 25, 30, 25, 25]


def test_the_printed_rule_stays_at_its_minimum_after_one_rejection():
    # 15, 14.5 -> 15, raised to 20; then every draft has 20 tokens: 17.5, 18.75, ...
    assert lengths(PAPER, 29, *[20] * 12) == [30] + [20] * 13


def test_with_small_limits_the_printed_rule_stays_at_half_the_longest():
    small = AdaptiveLength(2, 8, 2, 0.5, "printed")
    assert lengths(small, 7, *[8] * 6) == [8] + [4] * 7                # 0.5 x 8, and 4 generated keep it there


@pytest.mark.parametrize("start", range(4))
def test_the_printed_rule_never_grows_again_after_a_rejected_token(start):
    taken = lengths(PAPER, *[99] * start, 19, *[99] * 20)
    fallen = taken[start + 1:]
    assert fallen == sorted(fallen, reverse=True)


@pytest.mark.parametrize("rate", [.3, .5, .9])
def test_the_printed_rule_never_grows_again_however_much_is_accepted_after_it(rate):
    rule, taken = AdaptiveLength(20, 30, 10, rate, "printed"), []
    averages = rule.next(None, (30, 29))
    for _ in range(300):                                               # averages compared to each other round to equal
        taken.append(rule.length(averages))
        averages = rule.next(averages, (taken[-1],) * 2)
    assert max(taken) == taken[0]


def test_the_ceiling_is_taken_before_clipping():
    free = AdaptiveLength(1, 30, 0, 0.5, "printed")
    assert length(free, (9, 0)) == 5                             # ceil(4.5)


def test_the_corrected_rule_starts_from_the_first_observation():
    policy = AdaptiveLength(2, 32, 2, 0.5, share=.6, margin=2)
    assert length(policy, (10, 6)) == 12                         # 6 >= 0.6 x 10: 10 + 2
    assert length(policy, (10, 5)) == 7                          # 5 + 2
    assert length(policy, (10, 5), (7, 4)) == 7                  # 8.5 and 4.5 < 5.1: ceil(4.5) + 2
    assert length(policy, (10, 5), (7, 7)) == 11                 # 8.5 and 6 >= 5.1: ceil(8.5) + 2


def test_the_corrected_rule_shrinks_and_grows_with_the_text():
    # after the rejections 4.25 generated and 0.5 accepted; 3.6 and 1.75: 2 + 2; 3.8 and 2.9: 4 + 2; 4.9 and 4.4: 5 + 2
    assert lengths(AdaptiveLength(), 8, 0, 0, 0, 0, 8, 8, 8, 8) == [8, 8, 6, 4, 3, 3, 4, 6, 7, 8]


def test_the_accepted_share_is_of_the_generated_length_not_of_the_budget():
    ended = round_of(deterministic_chain((1, 2, END)), 2)
    assert round_lengths(ended, frozenset({END})) == (2, 2)
    assert round_lengths(ended) == (3, 2)
    session = begin((1, 2), 50, end=frozenset({END}))
    assert AdaptiveLength()(session.after(ended), NO_DICE) == Budget(4)          # 2 + 2, with a budget of 8


def test_the_generated_length_is_that_of_the_raw_draft_not_of_the_searched_path():
    raw = with_notes(deterministic_chain((1, 2, 3)), generated=8)
    assert round_lengths(round_of(raw, 1)) == (8, 1)
    assert round_lengths(round_of(with_notes(Draft(), generated=0), 0)) == (0, 0)


def test_rounds_without_a_draft_change_nothing():
    for rule in ("printed", "corrected"):
        policy = AdaptiveLength(rule=rule)
        assert length(policy, (0, 0), (0, 0)) == 8
        assert length(policy, (8, 2), (0, 0), (4, 1)) == length(policy, (8, 2), (4, 1))


def test_lengths_stay_within_the_limits():
    for rule in ("printed", "corrected"):
        for accepted in (0, 3, 99):
            assert set(lengths(AdaptiveLength(3, 6, rule=rule), *[accepted] * 9)) <= {3, 4, 5, 6}


def test_the_length_depends_on_the_session_alone():
    sessions = [after(*[(8, i % 9)] * i) for i in range(9)]
    policy = AdaptiveLength()
    forth = [policy(session, NO_DICE) for session in sessions]
    assert [policy(session, NO_DICE) for session in reversed(sessions)][::-1] == forth
    assert [replace(policy)(session, NO_DICE) for session in sessions] == forth


def test_an_average_never_exceeds_a_constant_input():
    for rate in (.1, .2, .5, .9):                                      # else its ceiling is one token too long
        averages = AverageLengths(0.0, 0.0, 0.0)
        for _ in range(400):
            averages = averages.after((13, 7), rate)
            assert averages.generated <= 13
            assert averages.accepted <= 7
            assert averages.behind <= 6


def test_a_tree_gets_its_width_and_nodes():
    assert CARD.make(kit(), width=3, nodes=10)(after(), NO_DICE) == Budget(8, 3, 10)
    assert CARD.make(kit()) == AdaptiveLength()


@pytest.mark.parametrize("wrong", [{"shortest": 0}, {"shortest": 9}, {"growth": -1}, {"margin": -1}, {"rate": 0},
                                   {"rate": 1.1}, {"share": 0}, {"rule": "paper"}, {"width": 0}, {"nodes": -1}],
                         ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal):
        CARD.make(kit(), **wrong)
