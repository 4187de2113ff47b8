"""A block in compiled code is that of its separate operations bit for bit, and its walk but for rounding."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.heads import block_rows
from specdec_lib.heads.block_diffusion import BlockHead
from specdec_lib.heads.block_rows import compiled_block
from specdec_lib.models.llama.path_attention import has_vectors
from tests.heads.test_eagle_rows import CHAIN, IDS, SHAPE, TAPS, target_of, words
from tests.models.llama.test_compiled_layers import KINDS
from tests.worlds import random_block_diffusion

CHECKPOINT = random_block_diffusion(SHAPE, TAPS, IDS, block=5)
NEAR = {"bf16": 2e-2, "int4": 2e-2, "fp32": 1e-5}          # torch rounds a confidence and a correction's sum in bf16
pytestmark = pytest.mark.skipif(not has_vectors(), reason="the C code has no vectors for this processor")


def head_of(target, compiled: bool, **options) -> BlockHead:
    head = BlockHead(CHECKPOINT.state, CHECKPOINT.meta, target, **options)
    assert head.compiled is not None
    if not compiled:
        head.compiled = None
    return head


def state_of(head: BlockHead) -> list[torch.Tensor]:
    """What the head keeps of committed tokens."""
    return [head.cache.kv[:, :, :, :len(head.cache.rows)], head.feature]


def alike(mine, other, near: float) -> bool:
    """Whether two walks through the same slots are the same but for rounding; behind a near tie they may part."""
    for place, (one, two) in enumerate(zip(mine.stats, other.stats, strict=True)):
        same = mine.tokens[place] == other.tokens[place]
        if not same:
            return one.first - one.second < near
        if one != pytest.approx(two, abs=near) or abs(mine.confidence[place] - other.confidence[place]) > near:
            return False
    return True


@pytest.mark.parametrize("text_tokens", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_keep_the_same_rows_and_find_the_same_slots(kind, text_tokens, rounds):
    target = target_of(kind)
    heads = [head_of(target, compiled, text_tokens=text_tokens) for compiled in (True, False)]
    ended = 0
    for asked, (tokens, draft) in enumerate(rounds(seed=4, rounds=30)):
        if asked % 3 != 2:                         # in every third round somebody else drafts
            mine, other = (head(tokens, 1 + asked % 5) for head in heads)
            assert torch.equal(mine.slots.told, other.slots.told)
            assert alike(mine, other, NEAR[kind])
            assert all(map(torch.equal, *map(state_of, heads)))
            assert len({(head.forwards, head.fed) for head in heads}) == 1
            ended += mine.tokens == other.tokens
        target(tokens, draft)
    assert ended > 15
    assert (len(heads[0].ids) > len(IDS)) == text_tokens       # tokens of the text joined


@pytest.mark.parametrize("kind", KINDS)
def test_a_lattice_and_links_come_from_the_same_slots(kind):
    for text in (words(1), words(2), words(30)):
        heads = [head_of(target_of(kind), compiled, text_tokens=True) for compiled in (True, False)]
        (ids, after), (others, wanted) = (head.links(text, 4, 6).listed(6) for head in heads)
        assert ids == others
        for slot, before in ((0, 0), *product((1, 2, 3), range(len(ids[0])))):
            mine, other = after(slot, before), wanted(slot, before)
            ours, theirs = (dict(zip(each.columns, each.logp, strict=True)) for each in (mine, other))
            assert ours == pytest.approx(theirs, abs=NEAR[kind])
            assert mine.logp == sorted(mine.logp, reverse=True)
            assert mine.entropy == pytest.approx(other.entropy, abs=NEAR[kind])
            assert after(slot, before) is mine
        mine, other = (head.lattice(text, 3, 9) for head in heads)
        assert torch.equal(mine.ids, other.ids)
        assert torch.equal(mine.logp, other.logp)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [1, 3, 9])
def test_blocks_of_other_lengths_and_a_cache_that_grows_change_nothing(block, kind):
    target = target_of(kind)
    heads, text = [head_of(target, compiled, block=block) for compiled in (True, False)], words(1020)
    for _ in range(3):
        mine, other = (head(text, block) for head in heads)
        assert torch.equal(mine.slots.told, other.slots.told)
        assert alike(mine, other, NEAR[kind])
        target(text, CHAIN)
        text += CHAIN.tokens
    assert heads[0].cache.capacity > 1024


def test_the_walk_is_the_greedy_chain_by_hand():
    head = head_of(target_of("fp32"), compiled=True, text_tokens=True)
    text = words(30)
    found, before = head(text, 5), text[-1]
    rows, own = head.weights.output_rows(found.slots).double(), found.lattice
    changed = 0
    for slot, token in enumerate(found.tokens):
        read = head.weights.word(torch.tensor([before])).double()
        added = head.weights.correction(read.float()).double()[0]
        scores = own.logp[slot].double() + rows[slot] @ added
        chance = scores.softmax(-1)
        assert token == int(own.ids[slot, scores.argmax()])
        assert found.stats[slot].prob == pytest.approx(float(chance.max()), abs=1e-5)
        assert found.stats[slot].second == pytest.approx(float(chance.topk(2).values[1]), abs=1e-5)
        assert found.stats[slot].entropy == pytest.approx(float(torch.special.entr(chance).sum()), abs=1e-4)
        changed, before = changed + (token != int(own.ids[slot, 0])), token
    assert changed


def test_a_head_with_a_part_that_is_not_compiled_has_no_compiled_block(monkeypatch):
    head = head_of(target_of("bf16"), compiled=True)
    for part in ("compiled_functions", "compiled_stats", "dense_code"):
        with monkeypatch.context() as patch:
            patch.setattr(block_rows, part, lambda *_: None)
            assert compiled_block(head) is None
    head.attention = None
    assert compiled_block(head) is None
    double = BlockHead(CHECKPOINT.state, CHECKPOINT.meta, type(head.target).random(SHAPE, dtype=torch.float64))
    assert double.compiled is None


def test_the_code_is_loaded_once_for_all_decodes(monkeypatch):
    target = target_of("bf16")
    first = head_of(target, compiled=True).compiled
    monkeypatch.setattr(block_rows, "library", lambda *_: pytest.fail("loaded again"))
    assert head_of(target.fresh(), compiled=True).compiled.code is first.code


def test_missing_memory_is_a_memory_error(monkeypatch):
    head = head_of(target_of("fp32"), compiled=True)
    assert head.compiled is not None
    monkeypatch.setattr(head.compiled, "code", SimpleNamespace(keep_rows=lambda *_: 1, draft_block=lambda *_: 1))
    with pytest.raises(MemoryError, match="no memory"):
        head(words(1), 2)                          # no row to keep
    with pytest.raises(MemoryError, match="no memory"):
        head(words(20), 2)
