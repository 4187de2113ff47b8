"""A captured block says what the eager one says; its arithmetic runs here without a graph."""

import random
from dataclasses import replace

import pytest
import torch

from specdec_lib.heads.block_diffusion import BlockHead
from specdec_lib.heads.block_network import BlockWeights
from specdec_lib.heads.captured_block import CapturedBlock
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from tests.heads.captured_heads import CLOSE, words
from tests.heads.eagle_head import far
from tests.heads.test_block_diffusion import BLOCK, CHECKPOINT, SHAPE, TAPS

WEIGHTS = random_weights(replace(SHAPE, tied=True), seed=2)      # in float32; the output rows lie open in memory


def packed_weights() -> BlockWeights:
    return BlockWeights.pack(CHECKPOINT.state, len(TAPS), WEIGHTS)


def pair_of(packed: BlockWeights, text_tokens: bool = True, block: int | None = None) -> list[BlockHead]:
    """(fixed, eager): heads on targets of their own, the first one's in captured steps."""
    heads = []
    for static in (True, False):
        target = Transformer(WEIGHTS, static=static)
        heads.append(BlockHead(CHECKPOINT.state, CHECKPOINT.meta, target, block, packed, text_tokens))
        heads[-1].compiled = None                  # which would fill the eager head's block
    assert [head.lease is None for head in heads] == [False, True]
    return heads


def same(fixed: BlockHead, eager: BlockHead, text, depth=BLOCK):
    """The captured block, once it is found to be that of the eager head."""
    mine, want = fixed(text, depth), eager(text, depth)
    assert mine.tokens == want.tokens
    assert mine.confidence == pytest.approx(want.confidence, abs=CLOSE)
    for one, other in zip(mine.stats, want.stats, strict=True):
        assert tuple(one) == pytest.approx(tuple(other), abs=CLOSE)
    assert torch.equal(mine.lattice.ids, want.lattice.ids)
    assert far(mine.lattice.logp, want.lattice.logp) < CLOSE
    assert (fixed.forwards, fixed.fed, len(fixed.cache.rows)) == (eager.forwards, eager.fed, len(eager.cache.rows))
    return mine


@pytest.mark.parametrize("text_tokens", [True, False])
@pytest.mark.parametrize("block", [1, BLOCK, 9])
def test_over_rounds_the_block_is_that_of_the_eager_head(block, text_tokens):
    fixed, eager = pair_of(packed_weights(), text_tokens, block)
    dice, text = random.Random(block), words(20)
    for _ in range(12):
        drafted = same(fixed, eager, text, dice.randrange(1, block + 1)).tokens
        text += drafted[:dice.randrange(len(drafted) + 1)] + words(1, dice.random())
    assert (len(fixed.vocabulary.added) > 10) == text_tokens
    assert len(fixed.lease.held.blocks) == 1


def test_texts_that_go_back_or_start_anew_and_one_of_a_single_token():
    fixed, eager = pair_of(packed_weights())
    dice, text = random.Random(4), words(1)
    for _ in range(30):
        same(fixed, eager, text, dice.choice((1, 3, BLOCK)))
        text = dice.choice((text + words(1, dice.random()), text + words(40, dice.random()),
                            text[:dice.randrange(1, len(text) + 1)], words(dice.choice((1, 3)), dice.random())))


def test_lattices_and_links_are_those_of_the_eager_head():
    fixed, eager = pair_of(packed_weights())
    for text, depth, top in ((words(20), BLOCK, 4), (words(23), 3, 2), (words(30), 2, 99)):
        mine, want = fixed.lattice(text, depth, top), eager.lattice(text, depth, top)
        assert torch.equal(mine.ids, want.ids)
        assert far(mine.logp, want.logp) < CLOSE
        one, other = fixed.links(text, depth, top), eager.links(text, depth, top)
        assert torch.equal(one.ids, other.ids)
        assert far(one.after, other.after) < CLOSE


def test_what_a_block_said_stays_when_the_next_is_drafted(monkeypatch):
    places, plain = {}, CapturedBlock.launch

    def launch(block):
        """A graph writes to the same place every time."""
        out = plain(block)
        for to, new in zip(places.setdefault(block, [part.clone() for part in out]), out, strict=True):
            to.copy_(new)
        return tuple(places[block])

    monkeypatch.setattr(CapturedBlock, "launch", launch)
    fixed, _ = pair_of(packed_weights())
    first = fixed(words(20), BLOCK)
    told = first.slots.told.clone()
    fixed(words(40, 3), BLOCK)
    assert torch.equal(first.slots.told, told)


def test_a_cache_that_grows_drops_the_blocks_that_know_its_old_place():
    fixed, eager = pair_of(packed_weights())
    held, text = fixed.lease.held, words(2100)
    for size in (240, 250, 2030, 2038, 2046, 2060):            # it grows for padding and slots, then for the text
        same(fixed, eager, text[:size])
        assert all(block.rope is fixed.rope and block.place.columns <= held.cache.capacity
                   for block in held.blocks.values())
    assert held.cache.capacity > 2048


def test_padding_stays_finite_and_no_slot_sees_it():
    fixed, eager = pair_of(packed_weights())
    text = words(20)
    same(fixed, eager, text)
    block = fixed.lease.held.last
    block.taps[1:] = 1e3                           # of the next block's padding
    same(fixed, eager, (*text, 3))
    assert bool(torch.isfinite(fixed.cache.kv).all())
    with torch.inference_mode():
        once, again = block.compute(), block.compute()
    assert all(map(torch.equal, once, again))


def test_the_next_decode_has_the_blocks_of_the_last_and_sees_nothing_of_it():
    packed = packed_weights()

    def decoded(text):
        head = BlockHead(CHECKPOINT.state, CHECKPOINT.meta, Transformer(WEIGHTS, static=True), None, packed, True)
        return head(text, BLOCK), list(head.lease.held.blocks.values())[-1]
    first, block = decoded(words(40, 1))
    decoded(words(90, 2))
    second, same_block = decoded(words(40, 1))
    assert same_block is block
    assert first.tokens == second.tokens
    assert torch.equal(first.slots.told, second.slots.told)


def test_a_head_beside_a_plain_target_captures_nothing(monkeypatch):
    packed = packed_weights()
    monkeypatch.setattr(BlockHead, "capture", False)
    assert BlockHead(CHECKPOINT.state, CHECKPOINT.meta, Transformer(WEIGHTS, static=True), None, packed).lease is None
