"""The block drafter says what a plain forward over all its rows says, whatever was drafted or left out before."""

import random

import pytest
import torch
import torch.nn.functional as F

from specdec_lib.heads.block_diffusion import PACKED, BlockHead, block_head
from specdec_lib.heads.block_network import BlockWeights
from specdec_lib.models.llama.config import LlamaConfig, rope_table
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import Draft, Refusal
from tests.worlds import random_block_diffusion

SHAPE = LlamaConfig(layers=3, hidden=24, heads=4, kv_heads=2, head_dim=6, mlp=40, vocab=97, context=2048)
TAPS, BLOCK, DEPTH = (0, 2, 3), 5, 4
IDS = (2, 3, 5, 40, 41, 60, 70, 71, 96)
TARGET = Transformer.random(SHAPE, seed=2, dtype=torch.float64)
CHECKPOINT = random_block_diffusion(SHAPE, TAPS, IDS, block=BLOCK)
CHAIN = Draft((7, 8, 9), (-1, 0, 1))


def made(target=TARGET, checkpoint=CHECKPOINT, **options) -> tuple[Transformer, BlockHead]:
    target = target.fresh()
    return target, BlockHead(checkpoint.state, checkpoint.meta, target, **options)


def unit(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE.eps)


def turned(x, position):
    cos, sin = rope_table(SHAPE, position + 1, x.dtype, x.device)
    return x * cos[position] + x.roll(3, -1) * sin[position]


def plainly(tokens, streams, block=BLOCK):
    """Normed streams [block, hidden] and slot logits, one row at a time over a list of all that it sees."""
    w = {name: tensor if name == "ids" else tensor.double() for name, tensor in CHECKPOINT.state.items()}
    words, none = TARGET.weights.embedding, torch.zeros(24, dtype=torch.float64)
    features = [w["fc"] @ unit(streams[row]).reshape(-1) for row in range(len(tokens) - 1)]
    x = [features[-1] if features else none] * block
    pairs = zip(words[list(tokens[1:])], features, strict=True)
    read = [torch.cat((unit(word), unit(row))) for word, row in pairs][:-1]
    first, after = len(read), [torch.cat((unit(word), unit(x[0]))) for word in [words[tokens[-1]], *w["mask"]]]
    for i in range(2):
        part, keys, values, queries = f"layers.{i - 1}." if i else "", [], [], []
        seen = [*map(unit, features[:-1]), *map(unit, x)] if i else [*read, *after]
        for position, row in enumerate(seen):
            q, k, v = (w[f"{part}qkv"] @ row).view(-1, 6).split((4, 2, 2))
            queries.append(turned(q, position))
            keys.append(turned(k, position))
            values.append(v)
        k, v = (torch.stack(rows, 1).repeat_interleave(2, 0) for rows in (keys, values))        # all rows are seen
        gates = [w[f"gates.{i - 1}.{name}"] if i else 1 for name in ("attention", "mlp")]
        for slot in range(block):
            q = queries[first + slot]
            weight = torch.softmax((k @ q[:, :, None])[..., 0], -1)
            x[slot] = x[slot] + gates[0] * (w[f"{part}out"] @ (weight[:, None] @ v).reshape(-1))
            gate, up = (w[f"{part}gate_up"] @ unit(x[slot])).chunk(2)
            x[slot] = x[slot] + gates[1] * (w[f"{part}down"] @ (F.silu(gate) * up))
    x = unit(torch.stack(x)) * w["norm"]
    return x, x @ TARGET.weights.head.dense()[list(IDS)].T


def expected(tokens, depth=DEPTH, candidates=4):
    """(tokens, confidences, chances, slot log-probabilities) by hand."""
    target = TARGET.fresh()
    target.tap(TAPS)
    target.prefill(tokens)
    x, logits = plainly(tokens, target.features(tokens))
    w, rows, before = CHECKPOINT.state, TARGET.weights.head.dense()[list(IDS)], tokens[-1]
    out = [], [], []
    for slot in range(depth):
        e = unit(TARGET.weights.embedding[before])
        among = logits[slot].topk(candidates).indices
        weighed = logits[slot, among] + rows[among] @ (w["correction"].double() @ e)
        best = int(weighed.argmax())
        before = IDS[among[best]]
        for part, value in zip(out, (before, torch.sigmoid(torch.cat((x[slot], e)) @ w["confidence"].double()),
                                     weighed.softmax(-1)[best]), strict=True):
            part.append(float(value))
    return *out, torch.log_softmax(logits[:depth], -1)


def same(found, tokens, depth=DEPTH) -> bool:
    words, confidence, probs, logp = expected(tokens, depth)
    found_logp = torch.gather(logp, 1, torch.stack([torch.searchsorted(torch.tensor(IDS), ids)
                                                    for ids in found.lattice.ids]))
    return (found.tokens == tuple(map(int, words)) and found.confidence == pytest.approx(confidence, abs=1e-10)
            and [stat.prob for stat in found.stats] == pytest.approx(probs, abs=1e-10)
            and torch.allclose(found.lattice.logp, found_logp, atol=1e-10))


def text(n, seed=0):
    dice = random.Random(seed)
    return tuple(dice.randrange(97) for _ in range(n))


@pytest.mark.parametrize("length", [1, 2, 3, 20])
def test_a_block_is_that_of_a_plain_forward_over_all_rows(length):
    for seed in range(4):
        assert same(made()[1](text(length, seed), DEPTH), text(length, seed))


def test_the_correction_changes_the_drafted_chain():
    changed = 0
    for seed in range(8):
        found = made()[1](text(9, seed), DEPTH)
        changed += found.tokens != tuple(found.lattice.ids[:, 0].tolist())
    assert changed > 3


def test_a_lattice_holds_the_candidates_of_each_slot_best_first():
    lattice = made()[1](text(12), 3).lattice
    assert lattice.ids.shape == lattice.logp.shape == (3, 4)
    assert lattice.logp.dtype == torch.float64
    assert bool((lattice.logp.diff(dim=1) <= 0).all())
    assert set(lattice.ids.flatten().tolist()) <= set(IDS)


@pytest.mark.parametrize("length", [1, 2, 20])
def test_links_correct_every_later_candidate_by_each_of_the_slot_before(length):
    found = made()[1].links(text(length), 3, 4)
    own, w = made()[1](text(length), 3).lattice, CHECKPOINT.state
    rows = TARGET.weights.head.dense()

    def corrected(slot, before):
        added = w["correction"].double() @ unit(TARGET.weights.embedding[before])
        among = (own.logp[slot] + rows[own.ids[slot]] @ added).softmax(-1)
        return (among * own.logp[slot].exp().sum()).log()

    assert torch.equal(found.ids, own.ids)
    assert torch.equal(found.first, own.logp[0])
    for slot, column in ((1, 0), (1, 3), (2, 2)):
        assert torch.allclose(found.after[slot - 1, column], corrected(slot, own.ids[slot - 1, column]), atol=1e-12)


def test_links_hold_as_many_candidates_as_are_asked_for_or_kept():
    assert made()[1].links(text(9), 2, 3).after.shape == (1, 3, 3)
    assert made()[1].links(text(9), 1, 99).after.shape == (0, 4, 4)


def test_token_statistics_are_of_the_corrected_distribution_over_the_candidates():
    for stat in made()[1](text(12), 4).stats:
        assert 1 > stat.prob == stat.first >= stat.second > 0
        assert 0 < stat.entropy < 1.39


def test_a_shorter_draft_is_the_beginning_of_a_longer_one():
    long, short = (made()[1](text(20), depth) for depth in (5, 2))
    assert long.tokens[:2] == short.tokens
    assert long.confidence[:2] == pytest.approx(short.confidence, rel=1e-12)


def test_a_longer_block_takes_the_last_mask_again():
    state = CHECKPOINT.state | {"mask": CHECKPOINT.state["mask"][[0, 1, 2, 3, 3, 3]]}
    longer = BlockHead(state, CHECKPOINT.meta | {"block": 7}, TARGET.fresh())(text(20), 7)
    assert torch.equal(made(block=7)[1](text(20), 7).lattice.logp, longer.lattice.logp)


def test_a_block_of_another_length_has_another_first_slot():
    assert not torch.allclose(made(block=2)[1](text(20), 1).lattice.logp, made()[1](text(20), 1).lattice.logp)


def test_earlier_rounds_do_not_change_a_draft():
    target, head = made()
    dice, tokens = random.Random(1), text(20)
    for _ in range(25):
        if dice.random() < .6:                     # in the other rounds somebody else drafted
            assert same(head(tokens, DEPTH), tokens)
        target(tokens, CHAIN)
        tokens += CHAIN.tokens[:dice.randrange(4)] + (dice.randrange(97),)
        if dice.random() < .15:
            tokens = tokens[:dice.randrange(3, len(tokens))]


def test_a_committed_token_is_read_once_and_a_block_costs_one_forward():
    target, head = made()
    tokens = text(20)
    target.prefill(tokens[:-1])
    head(tokens, DEPTH)
    assert (head.forwards, head.fed, target.fed) == (1, 19, 19)
    head(tokens, 2)
    assert (head.forwards, head.fed) == (2, 20)    # the anchor's feature is of a row that is not kept
    target(tokens, CHAIN)
    assert same(head(tokens + (7, 8, 50), DEPTH), tokens + (7, 8, 50))               # two accepted, one of the target's
    assert (head.forwards, head.fed, target.fed) == (3, 24, 23)


def test_after_rounds_without_a_call_it_catches_up_without_a_target_forward():
    target, head = made()
    tokens = text(20)
    target.prefill(tokens[:-1])
    head(tokens, DEPTH)
    for _ in range(2):
        target(tokens, CHAIN)
        tokens += (7, 8, 50)
    before = target.forwards
    assert same(head(tokens, DEPTH), tokens)
    assert target.forwards == before
    assert head.fed == 26


def test_hidden_states_from_the_anchor_on_are_never_read_and_the_one_before_it_is():
    class Disturbed(Transformer):
        """Its streams from row `first` on are others, and some lie behind the last token."""

        def features(self, tokens):
            held = super().features(tokens)[:len(tokens) - 1].clone()
            held = torch.cat((held, torch.full((3, *held.shape[1:]), 1e3, dtype=held.dtype)))
            held[self.first:] += torch.linspace(0, 3, 24)
            return held

    for first, reads in ((19, True), (18, False)):
        target = Disturbed(TARGET.weights)
        target.first = first
        assert same(BlockHead(CHECKPOINT.state, CHECKPOINT.meta, target)(text(20), DEPTH), text(20)) == reads


def test_nothing_changes_where_the_cache_grows_and_a_long_prompt_is_read_in_pieces():
    target, head = made()
    tokens = text(1020)
    for _ in range(3):
        found = head(tokens, DEPTH)
        target(tokens, CHAIN)
        tokens += (7, 8, 9)
    new = made()[1](tokens[:-3], DEPTH)
    assert head.cache.capacity > 1024
    assert new.tokens == found.tokens
    assert torch.allclose(found.lattice.logp, new.lattice.logp, atol=1e-10)
    assert same(made()[1](text(600), DEPTH), text(600))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_weights_of_other_precisions_score_nearly_the_same(dtype):
    found = made(Transformer.random(SHAPE, seed=2, dtype=dtype))[1](text(30), DEPTH)
    want = made()[1](text(30), DEPTH)
    assert found.lattice.logp.dtype == torch.float32
    away = (found.lattice.logp.double() - want.lattice.logp).abs().max()
    assert away < (1e-4 if dtype == torch.float32 else .2) * want.lattice.logp.abs().max()


@pytest.mark.parametrize("depth", [0, 6])
def test_no_more_is_drafted_than_a_block_holds(depth):
    with pytest.raises(ValueError, match="a block of 5 drafts 1 to 5 tokens"):
        made()[1](text(20), depth)


def test_an_empty_block_is_refused_and_one_that_the_context_does_not_hold():
    for block, why in ((0, "at least one slot, got 0"), (SHAPE.context + 1, "does not fit into the target's context")):
        with pytest.raises(Refusal, match=why):
            made(block=block)


def test_a_drafter_of_the_same_checkpoint_and_weights_is_packed_once():
    checkpoint = random_block_diffusion(SHAPE, TAPS, IDS)
    one, other = block_head(checkpoint, TARGET.fresh()), block_head(checkpoint, TARGET.fresh())
    assert one.weights is other.weights
    assert one.cache is not other.cache
    assert len([key for key in PACKED.made if key[1] == id(TARGET.weights)]) == 1


@pytest.mark.parametrize(("change", "word"), [
    ({"fc": torch.zeros(24, 48)}, "another model"), ({"mask": None}, "lacks the tensor mask"),
    ({"ids": torch.tensor([1, 200])}, "vocabulary of 97"), ({"layers.0.qkv": None}, "lacks the tensor layers.0.qkv"),
    ({"gates.0.mlp": None}, "lacks the tensor gates.0.mlp"), ({"qkv": torch.zeros(48, 24)}, "another model"),
    ({"layers.0.down": torch.zeros(20, 40)}, "another model")])
def test_a_checkpoint_that_does_not_fit_the_target_is_refused_in_a_sentence(change, word):
    state = {name: tensor for name, tensor in (CHECKPOINT.state | change).items() if tensor is not None}
    with pytest.raises(Refusal, match=word):
        BlockWeights.pack(state, len(TAPS), TARGET.weights)
