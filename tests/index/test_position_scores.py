import pytest
import torch

from specdec_lib.index.position_scores import Chain, PositionScores
from specdec_lib.scores import RowStats
from specdec_lib.types import ROOT, Budget, Draft, Round, Session, Verdict

NOTE = "a drafter"
TREE = Draft((1, 2, 3, 4), (ROOT, 0, ROOT, 2))     # two chains of two tokens: nodes 0 1 and nodes 2 3


def round_of(*chains, path=()):
    draft = Draft(TREE.tokens, TREE.parents, notes={NOTE: chains})
    return Round(Budget(2), draft, RowStats(torch.zeros(1, 1), torch.zeros(1, 1)), Verdict(path, (9,)), ())


ONE, OTHER = Chain(7, 2, (0, 1)), Chain(8, 2, (2, 3))
GOOD, HALF, BAD = round_of(ONE, path=(0, 1)), round_of(ONE, path=(0,)), round_of(ONE)


def session_of(*rounds):
    session = Session((5, 6), 2, 50)
    for one in rounds:
        session = session.after(one)
    return session


def score(*rounds, key=7, scores=None):
    scores = scores or PositionScores(NOTE)
    scores.read(session_of(*rounds))
    return scores.score(key)


def test_a_score_moves_towards_the_accepted_share():
    assert score() == 0.5
    assert score(GOOD) == pytest.approx(.7 * .5 + .3)
    assert score(BAD) == pytest.approx(.7 * .5)
    assert score(HALF) == pytest.approx(.5)
    assert score(GOOD, BAD) == pytest.approx(.7 * .65)
    assert [score(HALF, scores=PositionScores(NOTE, start, 1)) for start in (0, 1)] == [.5, .5]        # the bounds


def test_a_key_that_was_tried_is_told_from_one_that_was_not_where_both_score_the_same():
    scores = PositionScores(NOTE)
    assert score(HALF, scores=scores) == score(HALF, key=8, scores=scores) == scores.start
    assert (scores.tried(7), scores.tried(8)) == (True, False)
    scores.read(session_of())
    assert not scores.tried(7)


def test_only_offered_chains_are_scored():
    assert score(BAD, key=8) == 0.5
    assert score(round_of(), GOOD) == score(GOOD)


def test_every_chain_of_a_round_is_scored_by_its_own_nodes():
    both = round_of(ONE, OTHER, path=(2, 3))
    assert score(both) == pytest.approx(.35)
    assert score(both, key=8) == pytest.approx(.65)


def test_nodes_beyond_the_length_of_a_chain_do_not_count():
    longer = Chain(7, 1, (0, 1))
    assert score(round_of(longer, path=(0,))) == score(round_of(longer, path=(0, 1))) == pytest.approx(.65)


def test_scores_depend_on_the_history_alone_in_any_order_of_calls():
    rounds, scores = (GOOD, BAD, HALF, BAD, GOOD), PositionScores(NOTE)
    forth = [score(*rounds[:n], scores=scores) for n in range(6)]
    back = [score(*rounds[:n], scores=scores) for n in range(5, -1, -1)]
    assert forth == back[::-1] == [score(*rounds[:n]) for n in range(6)]
    assert score(GOOD, GOOD, scores=scores) == score(GOOD, GOOD)


def test_a_round_of_another_drafter_changes_no_score():
    foreign = Round(Budget(2), TREE, GOOD.row_stats, Verdict((0, 1), (9,)), ())
    assert score(foreign) == 0.5


def test_each_round_is_processed_once():
    scores, processed = PositionScores(NOTE), []
    learn = scores._learn
    scores._learn = lambda round: processed.append(round) or learn(round)
    for n in range(1, 200):
        scores.read(session_of(*[GOOD] * n))
    assert len(processed) == 199


@pytest.mark.parametrize("choice", [{"start": 1.5}, {"start": -.1}, {"rate": 0}, {"rate": 2}], ids=str)
def test_an_impossible_start_or_rate_is_refused(choice):
    with pytest.raises(ValueError, match="start|rate"):
        PositionScores(NOTE, **choice)
