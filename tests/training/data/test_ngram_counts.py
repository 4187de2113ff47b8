"""Counting a Kneser-Ney trigram: the formula by hand, what its lower orders count, and what pruning may not change."""

import numpy as np
import pytest

from specdec_lib.models.ngram import Ngram
from specdec_lib.training.data.ngram_counts import count_ngrams, discounts

SIX = [(0, 1, 0, 1, 0, 2)]                                     # of four tokens; 3 is never seen


def prob(arrays, context, token) -> float:
    return float(np.exp(Ngram(arrays).logp(context, np.array([token]))[0]))


def noise(tokens: int = 3000, vocab: int = 40) -> list[list[int]]:
    """Sequences whose next token leans on the last, with rare tokens at the end of the vocabulary."""
    rng, text = np.random.default_rng(0), [0]
    for _ in range(tokens):
        near = (text[-1] * 7 + rng.geometric(0.3)) % vocab
        text.append(int(near if rng.random() < 0.8 else rng.integers(vocab)))
    return [text[i:i + 30] for i in range(0, tokens, 30)]


def test_six_tokens_give_the_probabilities_computed_by_hand():
    # continuations: 0, 1 and 2 each after one token; too few counts for estimates, so one half is taken off
    every = 1.5 / 3 / 4                                        # three halves left over, shared by four tokens
    unigram = 0.5 / 3 + every
    arrays = count_ngrams(SIX, vocab=4, least=1)
    assert prob(arrays, (), 0) == pytest.approx(unigram, abs=1e-7)
    assert prob(arrays, (), 3) == pytest.approx(every, abs=1e-7)
    after_one = 0.5 / 1 + 0.5 * unigram                        # "1 0" stands after one token, half of it kept
    assert prob(arrays, (1,), 0) == pytest.approx(after_one, abs=1e-7)
    # trigrams: n1 = 2, n2 = 1, so D = 2 / (2 + 2); "0 1 0" twice of twice
    assert prob(arrays, (0, 1), 0) == pytest.approx((2 - 0.5) / 2 + 0.25 * after_one, abs=1e-7)
    # "1 0" is followed by 1 once and by 2 once, and the bigram "0 2" stands after one token out of two
    after_zero = 0.5 / 2 + 0.5 * unigram
    assert prob(arrays, (1, 0), 2) == pytest.approx((1 - 0.5) / 2 + 0.5 * after_zero, abs=1e-7)


def test_a_pruned_bigram_hands_its_mass_to_the_order_below():
    unigram = 0.5 / 3 + 0.125
    arrays = count_ngrams(SIX, vocab=4, least=2)               # "0 2" was seen once: only "0 1" keeps its quarter
    assert prob(arrays, (0,), 2) == pytest.approx(0.75 * unigram, abs=1e-7)
    assert prob(arrays, (1, 0), 2) == pytest.approx(0.75 * unigram, abs=1e-7)


def test_an_often_seen_token_with_one_neighbour_is_rarer_than_its_count_says():
    san, francisco, glasses = 0, 1, 2
    text = [(13 + i % 2, san, francisco) for i in range(20)] + [(left, glasses) for left in range(3, 13)]
    arrays = count_ngrams(text, vocab=20)                      # 20 times after one token, 10 times after ten
    assert prob(arrays, (15,), glasses) > 5 * prob(arrays, (15,), francisco)
    assert prob(arrays, (san,), francisco) > prob(arrays, (san,), glasses)


def test_no_ngram_crosses_from_one_sequence_to_the_next():
    arrays = count_ngrams([(0, 1), (2, 3), (0, 1), (2, 3)], vocab=4)
    assert arrays["bigram.sizes"].tolist() == [1, 0, 1, 0]
    assert len(arrays["trigram.tokens"]) == 0


def test_three_discounts_come_from_the_counts_of_counts():
    counts = np.array([1] * 8 + [2] * 4 + [3] * 2 + [4])       # n1 .. n4 = 8, 4, 2, 1, so Y = 8 / 16
    assert discounts(counts).tolist() == [0, 1 - 2 * .5 * 4 / 8, 2 - 3 * .5 * 2 / 4, 3 - 4 * .5 * 1 / 2]


@pytest.mark.parametrize("least", [1, 2, 3])
def test_after_pruning_every_distribution_sums_to_one(least):
    model = Ngram(count_ngrams(noise(), vocab=40, least=least))
    contexts = np.array([(a, b) for a in range(-1, 40) for b in range(-1, 40)])
    sums = np.exp(model.logp_batch(contexts, np.tile(np.arange(40), (len(contexts), 1)))).sum(-1)
    assert abs(sums - 1).max() < 1e-12


def test_counts_below_the_least_are_not_kept():
    text = noise()
    sizes = [len(count_ngrams(text, vocab=40, least=least)["trigram.tokens"]) for least in (1, 2, 3)]
    by_hand = {}
    for piece in text:
        for i in range(len(piece) - 2):
            by_hand[tuple(piece[i:i + 3])] = by_hand.get(tuple(piece[i:i + 3]), 0) + 1
    assert sizes == [sum(n >= least for n in by_hand.values()) for least in (1, 2, 3)]


def test_where_no_token_has_a_neighbour_they_count_as_often_as_seen_and_all_have_mass():
    often, once, *never = count_ngrams([(0,), (0,), (1,)], vocab=5)["unigram"]
    assert often > once > max(never)
    assert min(never) > 0


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="between 0 and 3, got 0 to 4"):
        count_ngrams([(0, 4)], vocab=4)
    with pytest.raises(ValueError, match="at least one token"):
        count_ngrams([()], vocab=4)
