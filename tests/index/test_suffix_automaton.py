"""The suffix automaton against brute force: on fixed seeds, and as properties of random texts."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib.index.suffix_automaton import Repeat, SuffixAutomaton

TEXTS = st.integers(2, 4).flatmap(lambda symbols: st.lists(st.integers(0, symbols - 1), max_size=40)).map(tuple)


def by_brute_force(tokens) -> Repeat:
    for length in range(len(tokens) - 1, 0, -1):
        suffix = tokens[-length:]
        after = [i + length for i in range(len(tokens) - length) if tokens[i:i + length] == suffix]
        if after:
            return Repeat(length, after[0], after[-1])
    return Repeat()


def text(rng, size, letters):
    return tuple(rng.randrange(letters) for _ in range(size))


@pytest.mark.parametrize("letters", [1, 2, 3, 8])
def test_length_first_and_latest_occurrence_agree_with_brute_force(letters):
    rng = random.Random(letters)
    for _ in range(8):
        tokens, automaton = text(rng, 60, letters), SuffixAutomaton()
        for n in range(1, len(tokens) + 1):
            assert automaton.read(tokens[:n]) == by_brute_force(tokens[:n])


@pytest.mark.parametrize("letters", [2, 4])
def test_it_answers_for_any_session_in_any_order(letters):
    rng = random.Random(10 + letters)
    base, automaton = text(rng, 50, letters), SuffixAutomaton()
    for _ in range(150):
        tokens = base[:rng.randrange(51)] + text(rng, rng.randrange(6), letters)
        assert automaton.read(tokens) == by_brute_force(tokens)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(TEXTS)
def test_grown_token_by_token_it_agrees_with_brute_force(tokens):
    automaton = SuffixAutomaton()
    for n in range(1, len(tokens) + 1):
        assert automaton.read(tokens[:n]) == by_brute_force(tokens[:n])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(TEXTS, st.data())
def test_after_going_back_to_a_shorter_session_it_agrees_with_brute_force(tokens, data):
    shorter = tokens[:data.draw(st.integers(0, len(tokens)), label="kept tokens")]
    other = shorter + data.draw(TEXTS, label="another tail")
    automaton, fresh = SuffixAutomaton(), SuffixAutomaton()
    automaton.read(tokens)
    assert automaton.read(shorter) == fresh.read(shorter) == by_brute_force(shorter)
    assert inside(automaton) == inside(fresh)
    for n in range(len(shorter) + 1, len(other) + 1):
        assert automaton.read(other[:n]) == by_brute_force(other[:n])


def inside(automaton):
    return (automaton._next, automaton._link, automaton._length, automaton._first, automaton._recent, automaton._count,
            automaton._state, automaton._repeat, automaton._undo)


def test_going_back_restores_the_exact_state():
    rng = random.Random(3)
    for _ in range(20):
        start, tail = text(rng, rng.randrange(30), 2), text(rng, 30, 2)
        there_and_back, straight = SuffixAutomaton(), SuffixAutomaton()
        there_and_back.read(start + tail)
        there_and_back.read(start)
        straight.read(start)
        assert inside(there_and_back) == inside(straight)


def test_states_and_changes_grow_linearly_with_the_text():
    tokens = text(random.Random(0), 4000, 3)
    automaton = SuffixAutomaton()
    automaton.read(tokens)
    assert len(automaton._link) <= 2 * len(tokens)
    assert sum(len(added) + len(moved) for added, moved, _, _ in automaton._undo) <= 4 * len(tokens)


def test_a_loop_longer_than_the_climb_costs_no_more_than_the_climb_per_token():
    automaton = SuffixAutomaton(climb=4)
    automaton.read((7,) * 500)
    assert max(len(before) for _, _, _, before in automaton._undo) == 4
    assert automaton.repeat == Repeat(499, 499, 499)


def test_beyond_the_climb_the_latest_occurrence_is_still_an_occurrence():
    automaton, tokens = SuffixAutomaton(climb=2), (1, 2) * 20 + (3, 1, 2)
    found = automaton.read(tokens)
    assert found.length == 2
    assert tokens[found.recent - 2:found.recent] == (1, 2)
    assert found.recent < SuffixAutomaton().read(tokens).recent


@pytest.mark.parametrize("letters", [1, 2, 4])
def test_the_longest_suffix_of_another_text_agrees_with_brute_force(letters):
    rng = random.Random(20 + letters)
    for _ in range(30):
        tokens, other = text(rng, 40, letters), text(rng, rng.randrange(20), letters + 1)
        ends = {n: [i + n for i in range(41 - n) if tokens[i:i + n] == other[len(other) - n:]]
                for n in range(1, len(other) + 1)}
        longest = max((n for n, after in ends.items() if after), default=0)
        want = Repeat(longest, ends[longest][0], ends[longest][-1]) if longest else Repeat()
        automaton = SuffixAutomaton()
        automaton.read(tokens)
        assert automaton.find(other) == want


def occurrences(tokens, part):
    return sum(tokens[i:i + len(part)] == part for i in range(len(tokens) - len(part) + 1))


@pytest.mark.parametrize("letters", [1, 2, 3, 8])
def test_repeated_suffixes_and_their_occurrences_agree_with_brute_force(letters):
    rng = random.Random(30 + letters)
    for _ in range(6):
        tokens, automaton = text(rng, 40, letters), SuffixAutomaton()
        for n in range(1, len(tokens) + 1):
            automaton.read(tokens[:n])
            counts = {length: occurrences(tokens[:n], tokens[n - length:n]) for length in range(1, n)}
            longest_of = {count: max(length for length in counts if counts[length] == count)
                          for count in counts.values() if count > 1}
            found = list(automaton.repeated())
            assert {automaton.count(one.state): one.length for one in found} == longest_of
            assert [one.length for one in found] == sorted(longest_of.values(), reverse=True)


@pytest.mark.parametrize("letters", [2, 3])
def test_what_followed_a_suffix_and_how_often_agrees_with_brute_force(letters):
    rng = random.Random(40 + letters)
    for _ in range(20):
        tokens, automaton = text(rng, 40, letters), SuffixAutomaton()
        automaton.read(tokens)
        for suffix in automaton.repeated():
            part = tokens[len(tokens) - suffix.length:]
            wanted = {token: occurrences(tokens, (*part, token)) for token in range(letters)}
            found = {token: automaton.count(state) for token, state in automaton.followers(suffix.state).items()}
            assert found == {token: count for token, count in wanted.items() if count}


def test_followers_are_ranked_by_how_often_and_anew_when_the_text_changes():
    rng, automaton = random.Random(60), SuffixAutomaton()
    for length in (30, 31, 40, 12, 60):            # 12: a session that goes back
        automaton.read(text(random.Random(61), 60, 3)[:length] if rng.random() < 0.9 else text(rng, length, 3))
        for suffix in automaton.repeated():
            ranked = automaton.ranked(suffix.state)
            assert sorted(token for _, token, _ in ranked) == sorted(automaton.followers(suffix.state))
            assert all(automaton.count(state) == count for count, _, state in ranked)
            assert [count for count, *_ in ranked] == sorted((count for count, *_ in ranked), reverse=True)


def test_suffixes_of_another_text_and_their_occurrences_agree_with_brute_force():
    rng = random.Random(50)
    for _ in range(40):
        tokens, other = text(rng, 40, 3), text(rng, 12, 3)
        automaton = SuffixAutomaton()
        automaton.read(tokens)
        counts = {length: occurrences(tokens, other[len(other) - length:]) for length in range(1, len(other) + 1)}
        found = {one.length: automaton.count(one.state) for one in automaton.suffixes(other)}
        assert max(found, default=0) == max((length for length, count in counts.items() if count), default=0)
        assert all(counts[length] == count for length, count in found.items())
        assert set(found.values()) == {count for count in counts.values() if count}
