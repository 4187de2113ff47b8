"""The overhead benchmark: who is asked, what is counted as whose time, and that the decode it times is a real one."""

from itertools import count

import pytest

from specdec_lib.bench import overhead
from specdec_lib.index.position_scores import PositionScores
from specdec_lib.trees import deterministic_tree
from specdec_lib.types import Refusal
from specdec_lib.what.feedback_retrieval import NAME


def ticks():
    """A clock on which everything takes a second longer than what was done before it."""
    clock = count(0)
    return lambda: float(sum(range(next(clock))))


@pytest.fixture(scope="module")
def decode():
    text, entropies = overhead.passages(900, seed=1)
    steps = overhead.timed_rounds(overhead.without_model("respec", 8), text, entropies)
    return text, entropies, [step[0] for step in steps]


def test_the_text_is_said_to_the_end_and_every_token_keeps_its_entropy(decode):
    text, entropies, sessions = decode
    last = sessions[-1]
    assert last.tokens == text
    assert tuple(e for round in last.rounds for e in round.row_stats.entropy) == entropies[overhead.PROMPT:]


def test_rounds_leave_chains_behind_that_were_accepted_and_refused_so_that_scores_move(decode):
    last = decode[2][-1]
    scores = PositionScores(NAME)
    scores.read(last)
    offered = {chain.key for round in last.rounds for chain in round.draft.notes.get(NAME, ())}
    assert min(map(scores.score, offered)) < 0.5 < max(map(scores.score, offered))
    assert any(len(round.verdict.path) > 3 for round in last.rounds)


def test_the_text_repeats_itself_and_is_the_same_for_a_seed():
    text, entropies = overhead.passages(2000, seed=3)
    grams = list(zip(text, text[1:], text[2:], strict=False))
    assert len(set(grams)) < 0.7 * len(grams)
    assert len(entropies) == 2000
    assert overhead.passages(2000, seed=3) == (text, entropies) != overhead.passages(2000, seed=4)


def test_each_size_is_measured_over_the_rounds_before_it_on_the_clock_given():
    told = []
    small, large = overhead.overheads("respec", (400, 300), steps=11, clock=ticks(),
                                      progress=lambda *at: told.append(at))
    assert 300 <= small.tokens < 400 <= large.tokens
    assert small.rounds < large.rounds
    assert small.what.median - small.when.median == 1000.0             # asked second, in milliseconds
    assert small.together.median == small.when.median + small.what.median
    assert large.together.high - large.together.median == 5 * 6000.0   # the middle and the last of eleven rounds
    assert told[-1] == (400, 400, "tokens of context")


def test_one_interrupted_first_round_does_not_stand_for_all(decode):
    readings = iter([0.0, 0.0, 0.001, 1.0, 1.0, 10.0, 20.0, 20.0, 20.002])    # start, trigger, draft of three rounds
    new = [overhead.without_model("respec", 8) for _ in range(overhead.COLD)]
    found = overhead.overhead(decode[2][-1], [(1.0, 1.0)], new, lambda: next(readings))
    assert found.cold == pytest.approx(2.0)


def test_the_highest_five_of_a_hundred_rounds_are_left_out_of_the_95th_percentile():
    assert overhead.timing([0.001] * 94 + [0.002] + [9.0] * 5) == overhead.Timing(1.0, 2.0)
    assert overhead.timing([0.001] * 94 + [9.0] * 6).high == 9000.0
    assert overhead.timing([9.0]).high == 9000.0


def test_the_path_of_a_draft_is_the_one_that_the_text_takes():
    tree = deterministic_tree([(1, 2, 3), (1, 5, 6)], 9)
    assert overhead.nodes_along(tree, (1, 5, 9)) == (0, 3)
    assert overhead.nodes_along(tree, (4,)) == ()


def test_the_model_drafter_is_silent_and_the_copier_is_the_methods_own():
    for spec in ("respec(longest=6)", "respec-relaxed", "respec+token-recycling"):
        method = overhead.without_model(spec, 5)
        text, entropies = overhead.passages(500)
        sources = {name for one, *_ in overhead.timed_rounds(method, text, entropies) for r in one.rounds
                   for name in r.draft.source}
        assert sources == {NAME}, spec
    assert overhead.without_model("respec(longest=6)", 5).when.retrieve.depth == 6


@pytest.mark.parametrize(("words", "sentence"), [
    ({"spec": "sam"}, "no entropy trigger"), ({"spec": "respec@fixed"}, "no entropy trigger"),
    ({"sizes": (100,)}, "above the 256"), ({"sizes": ()}, "above the 256"), ({"steps": 0}, "at least 1"),
    ({"spec": "respec(thet=1)"}, "no parameter 'thet'")], ids=str)
def test_what_cannot_be_measured_is_refused(words, sentence):
    with pytest.raises(Refusal, match=sentence):
        overhead.overheads(**words)


def test_the_verdict_holds_the_95th_percentile_of_the_longest_context_against_the_limit():
    def at(high):
        spread = overhead.Timing(0.1, high)
        return overhead.Overhead(4000, 9, spread, spread, spread, 3.0)
    assert "under the limit of 0.5 ms" in overhead.verdict([at(9.0), at(0.4)])
    assert "4,000 tokens" in overhead.verdict([at(0.4)])
    assert "above the limit of 0.5 ms" in overhead.verdict([at(0.6)])
