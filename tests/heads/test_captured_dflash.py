"""A captured block of a published drafter says what a plain forward over the whole text says, as an eager one does."""

import random

import pytest
import torch

from specdec_lib.heads.block_diffusion import block_head
from specdec_lib.heads.public_block import load_public_block
from specdec_lib.models.llama.decoder import Transformer
from tests.heads.captured_heads import words
from tests.heads.published import VOCAB
from tests.heads.published_block import ROWS, Plainly, written
from tests.heads.test_public_block import logp_of
from tests.heads.test_public_eagle import far, random_target

SLOTS = ROWS - 1


class World:
    """A random target in double precision, a published drafter for it, and what a plain forward says."""

    def __init__(self, folder):
        there, model = random_target(folder / "target", VOCAB)
        self.weights = Transformer.load(there, torch.float64).weights
        self.plain, self.drafter = Plainly(written(folder / "drafter"), model), None
        self.folder = folder / "drafter"

    def head(self, static=True, block=None):
        target = Transformer(self.weights, static=static)
        self.drafter = self.drafter or load_public_block(self.folder, target)
        head = block_head(self.drafter, target, block)
        assert (head.lease is not None) == static
        return head

    def same(self, head, text, depth=SLOTS):
        """The block, once every slot of it is found to be the plain forward's."""
        want = self.plain.logits(text).log_softmax(-1)[:depth]
        assert far(logp_of(head, text, depth), want) < 1e-9
        block = head(text, depth)
        assert block.tokens == tuple(want.argmax(-1).tolist())
        assert block.confidence == pytest.approx(want.exp().amax(-1).tolist(), abs=1e-9)
        return block


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.parametrize("block", [1, SLOTS, 7])
def test_over_rounds_every_slot_is_that_of_a_plain_forward_and_one_graph_serves_every_length(world, block):
    world.plain.rows = block + 1
    fixed, eager, dice, text = world.head(block=block), world.head(False, block), random.Random(block), words(20)
    for at in range(10):
        depth = dice.randrange(1, block + 1) if at else block
        drafted = world.same(fixed, text, depth).tokens
        assert drafted == world.same(eager, text, depth).tokens
        assert (fixed.forwards, fixed.fed, len(fixed.cache.rows)) == (eager.forwards, eager.fed, len(eager.cache.rows))
        fixed.keep = None                          # from now on the graph takes in a whole path and its token
        text += drafted[:dice.randrange(depth + 1) if at else depth] + words(1, dice.random())
    assert [place.candidates for place in fixed.lease.held.blocks] == [VOCAB, 8]        # of lattices, and of chains


def test_texts_that_go_back_or_start_anew_and_one_of_a_single_token(world):
    fixed, dice, text = world.head(), random.Random(4), words(1)
    for _ in range(24):
        world.same(fixed, text, dice.choice((1, 3, SLOTS)))
        text = dice.choice((text + words(1, dice.random()), text + words(40, dice.random()),
                            text[:dice.randrange(1, len(text) + 1)], words(dice.choice((1, 3)), dice.random())))


@pytest.mark.parametrize(("top", "captured"), [(1, 8), (2, 8), (8, 8), (9, 16), (97, 97), (200, 97)])
def test_so_many_candidates_are_the_best(world, top, captured):
    text, fixed = words(30), world.head()
    mine, want = (head.lattice(text, 3, top) for head in (fixed, world.head(False)))
    assert fixed.lease.held.last.place.candidates == captured
    assert torch.equal(mine.ids, want.ids)
    assert mine.ids.shape == (3, min(top, VOCAB))
    assert far(mine.logp, want.logp) < 1e-12


def test_a_cache_that_grows_drops_the_blocks_that_know_its_old_place(world):
    fixed, text = world.head(), words(2100)
    held = fixed.lease.held
    for size in (240, 252, 2030, 2037, 2042, 2043, 2060):      # columns grow for a slot, the cache for padding
        world.same(fixed, text[:size])
        assert all(block.rope is fixed.rope and block.place.columns <= held.cache.capacity
                   for block in held.blocks.values())
    assert held.cache.capacity > 2048


def test_padding_stays_finite_and_no_slot_sees_it(world):
    fixed, text = world.head(), words(20)
    fixed(text, SLOTS)
    block = fixed.lease.held.last
    with torch.inference_mode():
        block.taps[1:] = 1e3                       # of the next block's padding
    world.same(fixed, (*text, 3))
    assert bool(torch.isfinite(fixed.cache.kv).all())
    with torch.inference_mode():
        assert torch.equal(*block.compute(), *block.compute())


def test_the_next_decode_has_the_blocks_of_the_last_and_sees_nothing_of_it(world):
    def decoded(text):
        head = world.head()
        world.same(head, text)
        assert head.fed == len(text) - 1           # every row anew
        return list(head.lease.held.blocks.values())
    text = words(40, 1)
    blocks = decoded(text)
    decoded(text + words(50, 2))
    assert decoded(text) == blocks
