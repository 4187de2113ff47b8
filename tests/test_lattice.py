"""Paths through a lattice: narrowing, search, and the bound on any search."""

from itertools import product

import numpy as np
import pytest
import torch

from specdec_lib.lattice import best_chain, candidate_counts, generated, narrow, oracle, search
from specdec_lib.models.ngram import Ngram
from specdec_lib.training.data.ngram_counts import count_ngrams
from specdec_lib.types import Lattice, Refusal

END = frozenset({9})


def lattice(*slots: dict[int, float]) -> Lattice:
    """A lattice from probabilities by token, best first."""
    return Lattice(torch.tensor([list(slot) for slot in slots]),
                   torch.tensor([list(slot.values()) for slot in slots]).log())


def candidates(one: Lattice) -> list[list[int]]:
    return [[token for token, value in zip(ids, logp, strict=True) if value > -np.inf]
            for ids, logp in zip(one.ids.tolist(), one.logp.tolist(), strict=True)]


def spread(seed: int, slots: int, m: int, vocab: int = 9) -> Lattice:
    """A random lattice of the m best of a vocabulary."""
    logits = 2 * torch.randn(slots, vocab, generator=torch.Generator().manual_seed(seed))
    value, ids = torch.log_softmax(logits, -1).topk(m)
    return Lattice(ids, value)


PROXY = Ngram(count_ngrams([(0, 1, 2, 3, 4, 5, 6, 7, 8), (8, 6, 4, 2, 0, 1, 3, 5, 7), (2, 2, 3, 1, 0, 8, 5, 4, 4)] * 3,
                           10))
PEAKED = {1: .85, 2: .1, 3: .03, 4: .02}
FLAT = {4: .4, 3: .35, 2: .2, 1: .05}
ENDS = {9: .6, 1: .2, 2: .1, 3: .1}


# --- narrowing ------------------------------------------------------------------------------------------------------

def test_a_slot_keeps_the_fewest_candidates_with_the_mass():
    assert candidates(narrow(lattice(PEAKED, FLAT), .8)) == [[1], [4, 3, 2]]
    assert candidates(narrow(lattice(PEAKED, FLAT), .7)) == [[1], [4, 3]]
    assert candidate_counts(narrow(lattice(PEAKED, FLAT), 1.0)) == (4, 4)


def test_a_slot_keeps_at_most_cap_candidates_and_always_the_best():
    assert candidates(narrow(lattice(PEAKED, FLAT), .99, cap=2)) == [[1, 2], [4, 3]]
    assert candidates(narrow(lattice(PEAKED, FLAT), 1e-9, cap=1)) == [[1], [4]]


def test_mass_is_of_the_whole_distribution_not_of_the_lattice():
    assert candidates(narrow(lattice({1: .3, 2: .2}, {3: .9, 4: .05}), .6)) == [[1, 2], [3]]


def test_end_tokens_stay_at_any_probability_and_beyond_the_cap_with_keep_end():
    late = {1: .7, 2: .2, 3: .06, 9: .04}
    assert candidates(narrow(lattice(late, late), .8, 2, END)) == [[1, 2, 9]] * 2
    assert candidates(narrow(lattice(late, late), .8, 2, END, keep_end=False)) == [[1, 2]] * 2
    assert candidates(narrow(lattice(late, late), .8, 2)) == [[1, 2]] * 2


def test_the_lattice_ends_after_a_slot_whose_best_is_an_end_token():
    assert candidates(narrow(lattice(PEAKED, ENDS, FLAT), .5, 15, END)) == [[1], [9]]
    assert len(narrow(lattice(PEAKED, ENDS, FLAT), .5).ids) == 3


def test_a_narrowed_lattice_is_best_first_with_unchanged_log_probabilities():
    wide = spread(1, 5, 9)
    few = narrow(wide, .9, 4)
    assert few.ids.shape == few.logp.shape == (5, max(candidate_counts(few)))
    assert bool((few.logp[:, 1:] <= few.logp[:, :-1]).all())
    for ids, logp, before in zip(candidates(few), few.logp.tolist(), wide.logp.double().tolist(), strict=True):
        assert logp[:len(ids)] == before[:len(ids)]


def test_narrowing_again_changes_nothing():
    once = narrow(spread(2, 5, 9), .7, 4, END)
    twice = narrow(once, .7, 4, END)
    assert candidates(once) == candidates(twice)


@pytest.mark.parametrize(("mass", "cap"), [(0, 3), (1.1, 3), (.8, 0)])
def test_an_impossible_mass_or_cap_is_refused(mass, cap):
    with pytest.raises(Refusal, match=f"got {mass} and {cap}"):
        narrow(lattice(PEAKED), mass, cap)


def test_the_raw_length_counts_tokens_before_the_first_end_token():
    assert generated(lattice(PEAKED, FLAT, ENDS, PEAKED), END) == 2
    assert generated(lattice(PEAKED, ENDS)) == 2
    assert best_chain(lattice(PEAKED, FLAT, ENDS, PEAKED), END) == (1, 4, 9)
    assert best_chain(lattice(ENDS, PEAKED)) == (9, 1)


# --- the bound ------------------------------------------------------------------------------------------------------

def test_the_oracle_is_the_longest_prefix_of_the_text_in_the_lattice():
    whole = lattice(PEAKED, FLAT, PEAKED)
    assert oracle(whole, (2, 1, 7, 1)) == (2, 1)
    assert oracle(whole, (1, 4, 1, 1)) == (1, 4, 1)
    assert oracle(whole, (2, 1)) == (2, 1)
    assert oracle(whole, ()) == ()
    assert oracle(narrow(whole, .8), (1, 1, 1)) == (1,)
    assert oracle(narrow(whole, .8), (2, 1)) == ()


@pytest.mark.parametrize("seed", range(6))
def test_no_searched_path_matches_the_text_beyond_the_oracle(seed):
    few, text = narrow(spread(seed, 6, 5), .9, 4), tuple(spread(seed + 50, 6, 1).ids[:, 0].tolist())
    bound = len(oracle(few, text))
    for path in search(few, (0, 1), PROXY, beam=4):
        same = next((i for i, (a, b) in enumerate(zip(path.tokens, text, strict=True)) if a != b), 6)
        assert same <= bound


# --- the search -----------------------------------------------------------------------------------------------------

def by_hand(one: Lattice, context, weight: float, end=frozenset(), score="sum") -> dict[tuple[int, ...], float]:
    """The score of every path, by exhaustive search."""
    out, slots = {}, [list(zip(i, p, strict=True)) for i, p in zip(one.ids.tolist(), one.logp.tolist(), strict=True)]
    for path in product(*slots):
        n = next((i for i, (token, _) in enumerate(path, 1) if token in end), len(path))
        text, total, hoped = list(context), 0.0, 0.0
        for token, logp in path[:n]:
            order = 0.0 if weight == 1 else float(PROXY.logp(text, [token])[0])
            total += weight * logp + (1 - weight) * order
            hoped += np.exp(total)
            text.append(token)
        out[tuple(text[len(context):])] = {"sum": total, "mean": total / n, "accepted": hoped}[score]
    return out


@pytest.mark.parametrize("weight", [0.0, .3, .5, 1.0])
@pytest.mark.parametrize("context", [(0, 1), (5,)])
def test_a_wide_beam_agrees_with_exhaustive_search(weight, context):
    one = spread(3, 4, 3)
    paths = search(one, context, PROXY, weight, beam=81)
    want = by_hand(Lattice(one.ids, one.logp.double()), context, weight)
    assert len(paths) == 81
    assert paths[0].tokens == max(want, key=want.get)
    for path in paths:
        assert path.score == pytest.approx(want[path.tokens] / 4, abs=1e-12)
    assert [path.score for path in paths] == sorted((path.score for path in paths), reverse=True)


@pytest.mark.parametrize("score", ["sum", "mean", "accepted"])
def test_a_wide_beam_compares_ended_and_longer_paths_by_the_given_score(score):
    end, one = frozenset({4}), spread(5, 4, 4)
    assert 4 in one.ids[1] or 4 in one.ids[2]
    paths = search(one, (0, 1), PROXY, .5, beam=300, end=end, score=score)
    want = by_hand(Lattice(one.ids, one.logp.double()), (0, 1), .5, end, score)
    assert {path.tokens: pytest.approx(path.score, abs=1e-12) for path in paths} == want
    assert all(token not in end for path in paths for token in path.tokens[:-1])


def test_without_a_proxy_the_best_path_is_the_best_of_every_slot():
    one = spread(4, 6, 5)
    for score in ("sum", "mean", "accepted"):
        assert search(one, (0, 1), None, beam=3, score=score)[0].tokens == best_chain(one)
    assert search(one, (0, 1), PROXY, 1.0)[0].tokens == best_chain(one)


def test_the_proxy_reads_two_tokens_and_decides_a_close_slot():
    close = lattice({1: .5, 6: .4}, {3: .45, 2: .4}, {3: .5, 7: .4})
    assert best_chain(close) == (1, 3, 3)
    assert search(close, (8, 0), PROXY)[0].tokens == (1, 2, 3)                 # 0 1 2 3 was counted, 0 1 3 3 was not
    either = lattice({0: .4, 3: .4})
    assert search(either, (4, 2), PROXY)[0].tokens == (0,)
    assert search(either, (2, 2), PROXY)[0].tokens == (3,)


def test_the_printed_sum_favours_ending_early_and_the_mean_per_token_does_not():
    slots = lattice(*[{1: .6, 9: .35, 2: .05}] * 8)                           # .6 ** 8 < .35
    assert search(slots, (0,), None, end=END, score="sum")[0].tokens == (9,)
    assert search(slots, (0,), None, end=END, score="mean")[0].tokens == (1,) * 8
    assert search(slots, (0,), None, end=END, score="accepted")[0].tokens == (1,) * 8


def test_with_uncertain_later_slots_the_mean_ends_early_and_the_accepted_length_does_not():
    fading = lattice({1: .9, 2: .05}, {2: .6, 9: .35}, *[{3: .1, 4: .05}] * 6)
    assert search(fading, (0,), None, end=END, score="mean")[0].tokens == (1, 9)
    assert len(search(fading, (0,), None, end=END, score="accepted")[0].tokens) == 8


def test_an_ended_path_stays_unchanged_while_others_grow():
    one = lattice({9: .5, 1: .4}, {2: .9, 3: .1}, {2: .9, 3: .1})
    paths = search(one, (0,), None, beam=2, end=END, score="mean")
    assert {path.tokens for path in paths} == {(9,), (1, 2, 2)}


def test_a_path_has_the_log_probability_of_each_token():
    one = spread(6, 4, 4)
    for path in search(one, (0, 1), PROXY, beam=5):
        assert list(path.logp) == [float(one.logp[i][one.ids[i] == token]) for i, token in enumerate(path.tokens)]


def test_excluded_candidates_are_on_no_path():
    few = narrow(spread(7, 5, 9), .6, 3)
    for weight in (0.0, .5, 1.0):
        for path in search(few, (0, 1), PROXY, weight, beam=50):
            assert all(token in slot for token, slot in zip(path.tokens, candidates(few), strict=True))
    assert len(search(few, (0, 1), PROXY, beam=5000)) == np.prod(candidate_counts(few))


def test_a_narrower_beam_finds_fewer_paths_and_all_of_them_differ():
    one = spread(8, 5, 4)
    for beam in (1, 3, 7):
        tokens = [path.tokens for path in search(one, (3,), PROXY, beam=beam)]
        assert len(set(tokens)) == len(tokens) == beam


def test_a_lattice_without_slots_has_the_empty_path():
    assert [path.tokens for path in search(Lattice(torch.zeros(0, 3).long(), torch.zeros(0, 3)), (1,))] == [()]


@pytest.mark.parametrize("values", [{"beam": 0}, {"weight": 1.5}, {"score": "best"}])
def test_an_impossible_search_is_refused(values):
    with pytest.raises(Refusal, match="mean, sum, accepted"):
        search(lattice(PEAKED), (0,), PROXY, **values)
