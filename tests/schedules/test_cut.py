"""Cut: what stays pending is decided by rows and verified tokens, never by a drafted token's own value."""

from dataclasses import replace

import pytest

from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.schedules.cut import ALL, CLASSES, NONE, SOME, ClassOfLength, CutAtBranchPoint, before_uncertain
from specdec_lib.schedules.overlap import Overlap
from specdec_lib.scores import TokenStats
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import ROOT, Draft, Method, Refusal
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.branch_point import BranchPoint
from specdec_lib.when.fixed import Fixed
from tests.worlds import TARGET, run, true_law

SESSION = begin((1, 2), 10)
FEW = Table({(): (.4, .3, .3), (0,): (.3, .7, 0.0), (1,): (0.0, 0.0, 1.0), (2,): (.4, .3, .3)})     # of few outcomes


def chain(*best: float) -> Draft:
    stats = tuple(TokenStats(.01, at, .0, 1.0) for at in best)
    return replace(deterministic_chain(tuple(range(len(best)))), stats=stats)


@pytest.mark.parametrize(("best", "kept"), [((.9, .9, .2, .9), 2), ((.1, .9), 0), ((.9, .3), 2), ((), 0)])
def test_a_chain_stays_up_to_the_first_uncertain_row(best, kept):
    assert len(before_uncertain(chain(*best), .3)) == kept


def test_siblings_of_an_uncertain_row_go_together_and_other_branches_stay():
    sure, unsure = TokenStats(.5, .5, .2, 1.0), TokenStats(.2, .2, .2, 1.0)
    tree = Draft((1, 2, 3, 4, 5), (ROOT, ROOT, 0, 0, 1), stats=(sure, sure, unsure, unsure, sure))
    assert before_uncertain(tree, .3).tokens == (1, 2, 5)


def test_without_statistics_all_stays():
    assert before_uncertain(deterministic_chain((1, 2)), .3).tokens == (1, 2)


@pytest.mark.parametrize(("expected", "kept"), [(NONE, 0), (SOME, 1), (ALL, 3)])
def test_the_predicted_class_decides_how_much_stays(expected, kept):
    assert len(CutAtBranchPoint(.3, lambda session, longest: expected)(SESSION, chain(.9, .1, .9), 3)) == kept


def test_epsilon_zero_keeps_all():
    assert len(CutAtBranchPoint(0.0)(SESSION, chain(0.0, .1), 2)) == 2


def test_the_predictor_sees_the_verified_text():
    seen = []

    def predict(session, longest):
        seen.append(session.tokens)
        return ALL

    made = Method(Fixed(2), DraftModel(FEW), Rejection(), Overlap(keep=CutAtBranchPoint(predict=predict)))
    output = run(made, Dice(3), tokens=12)
    text = (0, 1, 2, 0, 1, *output)
    assert len(seen) > 2
    assert all(tokens == text[:len(tokens)] for tokens in seen)
    assert len(set(map(len, seen))) == len(seen), "the verified text has grown from call to call"


def by_text(session, longest) -> int:
    """A predictor that gives every class."""
    return CLASSES[(len(session.tokens) + session.tokens[-1]) % 3]


@pytest.mark.parametrize("cut", [CutAtBranchPoint(.45), CutAtBranchPoint(.3, by_text), CutAtBranchPoint(1.0)],
                         ids=["at 0.45", "by the text", "at 1"])
def test_cutting_keeps_the_distribution(cut):
    made = Method(Fixed(2), DraftModel(FEW), Rejection(), Overlap(keep=cut))
    assert distance(every_outcome(lambda dice: run(made, dice)), true_law()) < 1e-12


def test_cutting_by_the_drawn_tokens_own_probability_is_caught():
    def own_value(session, draft, longest):
        low = next((node for node in range(len(draft)) if draft.stats[node].prob < .35), len(draft))
        return draft.keep(tuple(range(low)))

    made = Method(Fixed(2), DraftModel(FEW), Rejection(), Overlap(keep=own_value))
    assert distance(every_outcome(lambda dice: run(made, dice)), true_law()) > 0.01


def test_epsilon_is_a_probability():
    with pytest.raises(Refusal, match="epsilon"):
        CutAtBranchPoint(1.5)


@pytest.mark.parametrize(("length", "expected"), [(0.0, NONE), (0.49, NONE), (0.5, SOME), (3.49, SOME), (3.5, ALL),
                                                  (9.0, ALL), (None, SOME)])
def test_a_predicted_length_gives_the_class(length, expected):
    assert ClassOfLength(lambda tokens: length)(SESSION, 4) == expected


def test_a_predicted_length_is_compared_with_what_the_budget_allowed_below_the_accepted_tokens():
    seen = []

    def predict(session, longest):
        seen.append((len(session.output), longest))
        return ALL

    run(Method(Fixed(4), DraftModel(TARGET), Rejection(), Overlap(keep=CutAtBranchPoint(predict=predict))), Dice(3),
        tokens=12)
    assert seen[0] == (0, 4), "during the prefill no token of the draft is emitted"
    assert seen[1] == (5, 3), "four and the first of the next draft are: three of that draft wait"


def test_a_class_of_the_verified_text_keeps_the_target_distribution():
    lengths = {0: 0.0, 1: 1.0, 2: 5.0}             # by the last verified token: each class is met
    keep = CutAtBranchPoint(.45, ClassOfLength(lambda tokens: lengths[tokens[-1]]))
    dist = every_outcome(lambda dice: run(Method(Fixed(2), DraftModel(FEW), Rejection(), Overlap(keep=keep)), dice))
    assert distance(dist, true_law()) < 1e-12


# a drafter that is sure after 2 alone: a first token 2 leads to a longer draft than 0 or 1
SURE_AFTER_TWO = Table({(): (.4, .3, .3), (2,): (0.0, 0.0, 1.0)})


@pytest.mark.parametrize(("judged", "biased"), [(lambda draft, longest: longest, False),
                                                (lambda draft, longest: draft.depth, True)],
                         ids=["what the budget allowed", "what the draft came to"])
def test_a_class_by_the_length_that_a_draft_came_to_would_move_the_distribution(judged, biased):
    def keep(session, draft, longest):
        return CutAtBranchPoint(.45, ClassOfLength(lambda tokens: 1.6))(session, draft, judged(draft, longest))

    made = Method(BranchPoint(Fixed(3), 1, .45), DraftModel(SURE_AFTER_TWO), Rejection(), Overlap(keep=keep))
    assert (distance(every_outcome(lambda dice: run(made, dice)), true_law()) > .05) == biased
