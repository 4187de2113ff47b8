"""Likelihood under the target and distinct n-grams of a filled text."""

import pytest
import torch

from specdec_lib.canvas.text_quality import before_end, distinct_ngrams, target_nll
from specdec_lib.types import Draft
from tests.heads.test_draft_lm import TARGET


def test_the_likelihood_of_an_answer_is_the_sum_of_its_tokens_one_after_another():
    prompt, answer, total = (4, 9, 20), (31, 8, 40, 2), 0.0
    for place, token in enumerate(answer):
        logits = TARGET((*prompt, *answer[:place]), Draft()).logits[0]
        total -= float(torch.log_softmax(logits.double(), -1)[token])
    assert target_nll(TARGET, prompt, answer) == pytest.approx(total / 4)
    assert target_nll(TARGET, prompt, answer[:1]) != pytest.approx(total / 4)
    assert target_nll(TARGET, prompt, ()) is None


def test_distinct_ngrams_count_what_is_said_twice():
    assert distinct_ngrams((1, 2, 1, 2, 1), 2) == 0.5
    assert distinct_ngrams((1, 2, 3), 2) == 1
    assert distinct_ngrams((1,), 2) is None


def test_the_text_ends_before_its_first_end_token():
    assert before_end((5, 6, 0, 7, 0), {0}) == (5, 6)
    assert before_end((5, 6), {0}) == (5, 6)
