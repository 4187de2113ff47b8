"""A rollout says what each text would be continued by alone, keeps its rows busy, and stops what loops."""

import random
from dataclasses import replace

import pytest
import torch

from specdec_lib.models.huggingface_batch import BatchedHuggingFace
from specdec_lib.models.llama.batched import BatchedLlama
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data import batched_sampling as module
from specdec_lib.training.data.batched_sampling import SPAN, Request, loop_runs, sample_batched
from specdec_lib.types import Draft
from tests.training.other_target import other_target

SHAPE = LlamaConfig(layers=2, hidden=16, heads=2, kv_heads=1, head_dim=8, mlp=16, vocab=29, context=512)


@pytest.fixture
def lm():
    torch.set_num_threads(1)
    return Transformer.random(SHAPE, seed=1)


@pytest.fixture(params=["our own decoder", "transformers"])
def either(request, lm):
    return lm if request.param == "our own decoder" else other_target(29)


def requests(count, limit=24, temperatures=(0.0, 1.0)):
    dice = random.Random(7)
    return [Request(tuple(dice.randrange(29) for _ in range(dice.randrange(1, 12))), limit - i % 5,
                    temperatures[i % len(temperatures)], key=i) for i in range(count)]


def replies(lm, asked, rows, ends=(0, 1), **more):
    """By key."""
    queue = list(asked)
    batch = BatchedLlama(lm.weights) if isinstance(lm, Transformer) else BatchedHuggingFace(lm.model)
    found = list(sample_batched(batch, lambda: queue.pop(0) if queue else None, ends, 200, rows, **more))
    assert not queue or more
    return {reply.request.key: reply for reply in found}


def greedy(lm, prompt, limit, ends):
    """What the single decoder says."""
    lm, tokens = lm.fresh(), prompt
    while len(tokens) - len(prompt) < limit and (tokens == prompt or tokens[-1] not in ends):
        tokens += (int(lm(tokens, Draft()).logits[0].argmax()),)
    return tokens[len(prompt):]


def test_greedy_replies_are_the_single_decoders(either):
    asked = requests(11, temperatures=(0.0,))
    for reply in replies(either, asked, rows=4).values():
        assert reply.output == greedy(either, reply.request.prompt, reply.request.limit, (0, 1))
        assert reply.whole


def test_a_reply_does_not_depend_on_what_runs_beside_it(either):
    asked = requests(13)
    alone, together = replies(either, asked, rows=1), replies(either, asked, rows=5)
    assert alone == together
    assert len({reply.output for reply in alone.values()}) > 6


def test_looking_less_often_changes_nothing(either, monkeypatch):
    asked = requests(9)
    often = replies(either, asked, rows=3)
    monkeypatch.setattr(module, "LOOKS", {"cpu": 8})
    assert replies(either, asked, rows=3) == often


def test_replies_end_with_the_end_token_or_at_their_limit(lm):
    found = replies(lm, requests(20), rows=6).values()
    for reply in found:
        assert not {0, 1} & set(reply.output[:-1])
        assert reply.output[-1] in (0, 1) or len(reply.output) == reply.request.limit
    assert any(reply.output[-1] in (0, 1) for reply in found)


def test_what_a_reply_brings_up_is_run_in_the_row_that_is_free(lm):
    queue, seen = requests(3), []
    for reply in sample_batched(BatchedLlama(lm.weights), lambda: queue.pop(0) if queue else None, (), 30, rows=3):
        seen.append(reply.request.key)
        if reply.request.key < 10:
            queue.append(Request(reply.output[-3:], 5, key=reply.request.key + 10))
    assert sorted(seen) == [0, 1, 2, 10, 11, 12]


def test_when_time_is_over_replies_come_as_far_as_they_got(lm):
    looks = iter([False] * 4 + [True])
    found = replies(lm, requests(8), rows=8, ends=(), over=lambda: next(looks))
    assert {len(reply.output) for reply in found.values()} == {5}
    assert not any(reply.whole for reply in found.values())


def first_loop(output):
    """How long a text is when SPAN tokens in a row equal those one lag before: by hand."""
    for n in range(len(output) + 1):
        for lag in range(1, n):
            if n - lag >= SPAN and output[n - SPAN:n] == output[n - SPAN - lag:n - lag]:
                return n
    return None


@pytest.mark.parametrize("period", [1, 3, 50, 80])
def test_a_block_said_again_and_again_is_seen_after_64_tokens_of_repetition(period):
    text = tuple(range(100, 120)) + tuple(range(period)) * 200
    recent, runs = torch.full((1, 200), -1), torch.zeros(1, 200, dtype=torch.long)
    for n, token in enumerate(text, 1):
        recent, runs = loop_runs(recent, runs, torch.tensor([token]))
        if (runs >= SPAN).any():
            break
    assert n == first_loop(text) == 20 + period + SPAN


def test_a_text_that_loops_is_cut_where_64_tokens_are_repeated(lm):
    forgetful = Transformer(replace(lm.weights, layers=()))           # the next token follows from the last alone
    found = replies(forgetful, [Request((5, 6), 200), Request((9,), 200)], rows=2, ends=())
    for reply in found.values():
        assert len(reply.output) < 200
        assert first_loop(reply.output) == len(reply.output)


def test_a_row_does_not_count_what_was_said_in_it_before_as_repetition(lm):
    forgetful = Transformer(replace(lm.weights, layers=()))
    one, two = replies(forgetful, [Request((5, 6), 60, key=1), Request((5, 6), 60, key=2)], rows=1, ends=()).values()
    assert one.output == two.output
    assert len(one.output) == 60


def test_a_head_with_fewer_rows_says_tokens_not_columns(lm):
    ids = torch.tensor([3, 11, 19, 28])
    found = replies(lm.restricted(ids), requests(4), rows=2, ends=())
    assert {token for reply in found.values() for token in reply.output} <= set(ids.tolist())


def test_a_request_without_a_text_is_refused(lm):
    with pytest.raises(ValueError, match="needs a text"):
        replies(lm, [Request((), 5)], rows=1)
