"""A captured chain says what the eager one says; its arithmetic runs here without a graph."""

import random
from functools import partial

import pytest
import torch

from specdec_lib.heads import captured_draft, captured_memory
from specdec_lib.heads.captured_draft import room_for_text, width_of
from specdec_lib.heads.eagle import EagleHead
from specdec_lib.models.llama.cuda_graph import columns_for
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.kernels import compiled_attention
from specdec_lib.types import ROOT, Draft
from tests.heads.captured_heads import CLOSE, WEIGHTS, packed_weights, pair_of, words
from tests.heads.eagle_head import CHECKPOINT, SHAPE, TAPS, far


@pytest.fixture
def packed():
    return packed_weights()


@pytest.fixture
def pair(packed):
    return partial(pair_of, packed)


def same(fixed, eager, text, count):
    mine, want = fixed.chain(text, count), eager.chain(text, count)
    assert mine.best == want.best
    assert mine.logits.shape == want.logits.shape == (count, len(fixed.ids))
    assert far(mine.logits, want.logits) < CLOSE
    assert torch.equal(mine.ids, want.ids)
    rows = tuple(range(count))
    assert mine.row_stats(rows, 3).tops[0] == want.row_stats(rows, 3).tops[0]
    assert mine.row_stats(rows).entropy == pytest.approx(want.row_stats(rows).entropy, abs=CLOSE)
    assert (fixed.forwards, fixed.fed) == (eager.forwards, eager.fed)
    return mine


@pytest.mark.parametrize("text_tokens", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_over_rounds_the_chain_is_that_of_the_eager_head(pair, count, text_tokens):
    fixed, eager = pair(text_tokens)
    dice, text = random.Random(count), words(20)
    for _ in range(12):
        drafted = same(fixed, eager, text, count).best
        text += drafted[:dice.randrange(count + 1)] + words(1, dice.random())
    assert (len(fixed.vocabulary.added) > 10) == text_tokens
    assert len(fixed.lease.held.chains) == 1


def test_counts_that_change_and_texts_that_go_back_or_start_anew(pair):
    fixed, eager = pair()
    dice = random.Random(4)
    text = words(30)
    for _ in range(30):
        same(fixed, eager, text, dice.choice((1, 3, 4, 9)))
        text = dice.choice((text + words(1, dice.random()), text + words(11, dice.random()),
                            text[:dice.randrange(2, len(text) + 1)], words(3, dice.random())))


def test_chains_stand_between_scores_of_trees(pair):
    fixed, eager = pair()
    text, tree = words(20), Draft((7, 8, 9, 10), (ROOT, ROOT, 0, 0))
    for turn in range(6):
        same(fixed, eager, text, 4)
        assert far(fixed(text, tree).logits, eager(text, tree).logits) < CLOSE
        text += (7, 9) if turn % 2 else words(3, turn)


def test_a_cache_that_grows_drops_the_chains_that_know_its_old_place(pair, monkeypatch):
    monkeypatch.setattr(captured_memory, "ROWS", 512)
    fixed, eager = pair()
    held, text = fixed.lease.held, words(700)
    for size in (240, 250, 500, 503, 509, 700):    # the bucket of columns changes from 256 to 512, then the cache grows
        same(fixed, eager, text[:size], 5)
        assert all(chain.columns <= held.cache.capacity for chain in held.chains.values())
    assert held.cache.capacity == 1024
    assert {chain.columns for chain in held.chains.values()} == {1024}
    assert all(chain.rope is fixed.rope for chain in held.chains.values())


def test_tokens_of_a_text_that_outgrow_their_room_go_on_in_a_larger_one(pair, monkeypatch):
    monkeypatch.setattr(captured_draft, "ROOM", 8)
    fixed, eager = pair()
    for size in (4, 12, 13, 14, 15, 30, 60, 97):
        same(fixed, eager, tuple(range(size)), 3)
    assert {chain.room for chain in fixed.lease.held.chains.values()} == {8, 16, 32, 64, 128}


def test_a_chain_uses_the_same_memory_every_time_and_is_computed_again_to_the_same_bits(pair):
    fixed, _ = pair()
    text = words(20)
    fixed.chain(text, 3)
    chain = fixed.lease.held.last
    places = [tensor.data_ptr() for tensor in (chain.inputs, chain.taps, fixed.cache.kv, fixed.hidden)]
    first = fixed.chain(text + (5, 96), 3)
    assert fixed.lease.held.last is chain
    assert places == [tensor.data_ptr() for tensor in (chain.inputs, chain.taps, fixed.cache.kv, fixed.hidden)]
    with torch.inference_mode():
        once, again = chain.compute(), chain.compute()
    assert all(map(torch.equal, once, again))
    assert torch.equal(once[0][:, :first.columns], first.logits)


def test_the_next_decode_has_the_chains_of_the_last_and_sees_nothing_of_it(packed):
    def decoded(text):
        head = EagleHead(CHECKPOINT.state, TAPS, Transformer(WEIGHTS, static=True), packed, True)
        return head.chain(text, 4).logits.clone(), list(head.lease.held.chains.values())[-1]
    first, chain = decoded(words(40, 1))
    decoded(words(90, 2))
    second, same_chain = decoded(words(40, 1))
    assert same_chain is chain
    assert torch.equal(first, second)


def test_the_memory_of_a_head_that_only_a_cycle_holds_goes_to_the_next_one(packed):
    head = EagleHead(CHECKPOINT.state, TAPS, Transformer(WEIGHTS, static=True), packed, True)
    target, held, head.itself = Transformer(WEIGHTS, static=True), head.cache, head
    del head
    assert EagleHead(CHECKPOINT.state, TAPS, target, packed, True).cache is held


def test_two_heads_at_once_have_caches_of_their_own(pair):
    (one, _), (two, _) = pair(), pair()
    before = one.chain(words(20), 4).logits.clone()
    two.chain(words(20, 3), 4)
    assert one.cache is not two.cache
    assert torch.equal(one.chain(words(20), 4).logits, before)


def test_padding_stays_finite_and_no_row_sees_it(pair):
    fixed, eager = pair()
    text = words(20)
    fixed.chain(text, 5)
    chain = fixed.lease.held.last
    chain.taps[1:] = 1e3                           # of the next chain's padding
    same_as_before = fixed.chain(text + (3,), 5)
    assert far(same_as_before.logits, eager.chain(text + (3,), 5).logits) < CLOSE
    assert bool(torch.isfinite(fixed.cache.kv).all())
    assert bool(torch.isfinite(fixed.hidden).all())


def test_widths_hold_a_chain_and_one_token_and_rooms_are_powers_of_two():
    assert all(width_of(count) >= count + 1 for count in range(1, 70))
    assert [width_of(count) for count in (1, 5, 7, 8, 16)] == [8, 8, 8, 16, 32]
    assert [room_for_text(added) for added in (0, 1, 256, 257, 1000)] == [256, 256, 256, 512, 1024]
    assert columns_for(20 + width_of(5)) == 256


def test_a_head_beside_a_plain_target_captures_nothing(packed, monkeypatch):
    assert EagleHead(CHECKPOINT.state, TAPS, Transformer(WEIGHTS, static=False), packed).lease is None
    monkeypatch.setattr(EagleHead, "capture", False)
    assert EagleHead(CHECKPOINT.state, TAPS, Transformer(WEIGHTS, static=True), packed).lease is None


def test_the_angles_are_those_of_the_attention_that_reads_them(pair):
    fixed, _ = pair()
    alone = compiled_attention(SHAPE, torch.float32, WEIGHTS.device) is None
    assert fixed.rope[0].dtype == (fixed.dtype if alone else torch.float32)
