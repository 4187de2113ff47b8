"""A block drafter in training computes what the head computes at inference, and sees no more than the head does."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.cards import TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import base_matrix
from specdec_lib.checkpoints.quantize import pack
from specdec_lib.heads.block_diffusion import BlockHead
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.examples import Example
from specdec_lib.training.eval.decoding import decode_live
from specdec_lib.training.eval.teacher_forced import matches, tallies
from specdec_lib.training.nets.block_diffusion import BlockDiffusionNet, block_drafter
from specdec_lib.training.nets.decoder_layer import MATRICES, fused_state
from specdec_lib.training.nets.eagle import EagleNet
from specdec_lib.training.recipes import recipe
from tests.training.lessons import IDS, answered, batch_of, checkpoint, learned, logits, stirred
from tests.training.tiny import tiny_examples

TAPS, BLOCK = (1, 2, 3), 4


def made(target, seed: int | None = 0, **options) -> BlockDiffusionNet:
    given = {"rank": 3, "block": BLOCK, "candidates": 5, "random": True} | options
    drafter = BlockDiffusionNet(target, IDS, TAPS, (1, 3), **given)
    return drafter if seed is None else stirred(drafter, seed)


@pytest.fixture(scope="module")
def batch(target, data):
    return batch_of(target, data, TAPS)


@pytest.fixture(scope="module")
def drafter(target):
    return made(target)


def head(drafter, target) -> BlockHead:
    """What the checkpoint of this drafter becomes."""
    return BlockHead(drafter.state(), drafter.meta(), target.fresh())


@pytest.mark.parametrize("random", [False, True])
def test_every_slot_of_every_anchor_equals_the_head_at_inference(target, data, batch, random):
    drafter = made(target, 1, random=random)
    slots, there = logits(drafter, batch), head(drafter, target)
    for i, example in enumerate(data):
        for t in range(len(example)):
            lattice = there(example.tokens[:t + 1], BLOCK).lattice
            for k in range(BLOCK):
                columns = drafter.frozen.columns[lattice.ids[k]]
                logp = torch.log_softmax(slots[k][i, t], -1)
                assert torch.allclose(logp[columns], lattice.logp[k], atol=1e-4), (i, t, k)
                assert torch.equal(columns, slots[k][i, t].topk(5).indices)


def test_the_walk_under_a_true_prefix_is_the_heads_own_walk(target, drafter):
    there, corrected = head(drafter, target), 0
    for seed in range(12):
        text = tiny_examples(1, seed=seed)[0].tokens
        chain, t = there(text, BLOCK).tokens, len(text) - 1
        batch = batch_of(target, [Example(text, chain)], TAPS)
        slots = drafter.slots(batch)
        walked = [int(IDS[drafter.proposed(x[0], batch.later(batch.tokens, k)[0])[t]]) for k, x in enumerate(slots)]
        assert tuple(walked) == chain
        corrected += walked != [int(IDS[(x[0, t] @ drafter.frozen.rows.T).argmax()]) for x in slots]
    assert corrected > 6                           # the correction had a say


def test_hidden_states_from_the_anchor_on_are_seen_by_no_slot(batch, drafter):
    clean, t = logits(drafter, batch), 4
    spoiled = replace(batch, streams={level: stream.clone() for level, stream in batch.streams.items()})
    for stream in spoiled.streams.values():
        stream[:, t:] += torch.linspace(0, 3, 16)
    dirty = logits(drafter, spoiled)
    for k in range(BLOCK):
        assert torch.equal(dirty[k][:, :t + 1], clean[k][:, :t + 1]), k
        assert not torch.allclose(dirty[k][:, t + 1], clean[k][:, t + 1])


def test_a_slot_sees_the_anchors_token_and_none_after_it(batch, drafter):
    clean, t = logits(drafter, batch), 4
    later, own = batch.tokens.clone(), batch.tokens.clone()
    later[:, t + 1:] = (later[:, t + 1:] + 7) % 40
    own[:, t] = (own[:, t] + 7) % 40
    for k in range(BLOCK):
        assert torch.equal(logits(drafter, replace(batch, tokens=later))[k][:, t], clean[k][:, t])
        assert not torch.allclose(logits(drafter, replace(batch, tokens=own))[k][:, t], clean[k][:, t])


def test_the_correction_of_a_slot_sees_the_token_before_it_alone(batch, drafter):
    x, t = drafter.slots(batch), 4
    for k in range(BLOCK):
        outside = (batch.tokens + 7) % 40
        outside[:, t + k] = batch.tokens[:, t + k]
        one, other = (batch.later(tokens, k)[:, t] for tokens in (batch.tokens, outside))
        assert torch.equal(drafter.proposed(x[k][:, t], one), drafter.proposed(x[k][:, t], other))


def test_blocks_do_not_see_each_other(batch, drafter):
    context = drafter.context(batch)
    alone = drafter.blocks(batch.tokens, torch.full((3, 1), 4), context)
    among = drafter.blocks(batch.tokens, torch.tensor([[2, 4, 5, 4]] * 3), context)
    assert torch.allclose(among[:, 1], alone[:, 0], atol=1e-5)
    assert torch.allclose(among[:, 3], alone[:, 0], atol=1e-5)


def test_every_slot_of_a_block_sees_every_other(target, batch):
    drafter = made(target)
    clean = logits(drafter, batch)
    longer = logits(made(target, block=BLOCK + 1), batch)
    assert all(not torch.allclose(a, b, atol=1e-3) for a, b in zip(clean, longer, strict=False))


def test_labels_are_not_seen(batch, drafter):
    other = replace(batch, top_ids=batch.top_ids.flip(-1), top_logp=torch.zeros_like(batch.top_logp),
                    start=batch.start * 0, stop=batch.stop - 1)
    assert all(torch.equal(a, b) for a, b in zip(logits(drafter, batch), logits(drafter, other), strict=True))


def test_padding_changes_nothing(target, data, batch, drafter):
    for i, example in enumerate(data):
        alone = logits(drafter, batch_of(target, [example], TAPS))
        for a, b in zip(logits(drafter, batch), alone, strict=True):
            assert torch.allclose(a[i, :len(example)], b[0], atol=1e-5)


def test_many_anchors_are_made_in_parts(target, monkeypatch):
    long = batch_of(target, tiny_examples(2, output=(40, 50)), TAPS)
    drafter = made(target)
    whole = logits(drafter, long)
    monkeypatch.setattr("specdec_lib.training.nets.block_diffusion.AT_ONCE", 7)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(whole, logits(drafter, long), strict=True))


def test_a_drafter_with_loaded_tensors_drafts_the_same(target, batch, drafter):
    other = made(target, None)
    assert not torch.allclose(logits(other, batch)[0], logits(drafter, batch)[0])
    other.take(drafter.state())
    assert all(torch.equal(a, b) for a, b in zip(logits(other, batch), logits(drafter, batch), strict=True))
    assert all(torch.equal(other.state()[name], tensor) for name, tensor in drafter.state().items())


def test_it_starts_from_an_untrained_head_and_the_targets_last_layers_where_no_head_is_given(target):
    copied, random = BlockDiffusionNet(target, IDS), BlockDiffusionNet(target, IDS, random=True)
    state, embedding, head = copied.state(), target.weights.embedding, EagleNet(target, IDS).state()
    assert copied.meta() == {"taps": [1, 2], "layers": [2, 3], "block": 8, "candidates": 16}
    assert all(torch.equal(state[name], head[name]) for name in (*MATRICES, "fc", "norm"))
    for i, layer in enumerate((2, 3)):
        start = fused_state(target.weights.layers[layer], 4)
        assert all(torch.equal(state[f"layers.{i}.{name}"], start[name]) for name in MATRICES)
    assert torch.allclose(state["mask"], embedding.mean(0).expand(7, -1))
    assert not any(state[name].any() for name in ("correction", "gates.0.attention", "gates.1.mlp"))
    assert {name: tensor.shape for name, tensor in state.items()} == {
        name: tensor.shape for name, tensor in random.state().items()}
    assert not torch.equal(random.state()["layers.0.out"], state["layers.0.out"])
    assert not torch.equal(random.state()["out"], state["out"])


def test_a_slot_without_masks_behind_it_is_a_step_of_the_head_that_it_starts_from(target, batch):
    head = stirred(EagleNet(target, IDS, TAPS))
    alone = logits(BlockDiffusionNet(target, IDS, TAPS, block=1, head=head.state()), batch)
    with torch.no_grad():
        wanted = head.slots(batch, 1)[0] @ head.frozen.rows.T
    assert torch.allclose(alone[0][:, 1:], wanted[:, 1:], atol=1e-4)


def test_the_drafter_of_a_recipe_names_the_head_that_it_starts_from_and_takes_over_what_it_can_draft(target):
    head = checkpoint("eagle", stirred(EagleNet(target, IDS, TAPS)))
    net = block_drafter(target, torch.arange(5), base=head)
    assert net.meta()["base"] == {"name": "eagle", "sha256": ""}
    assert net.meta()["taps"] == list(TAPS)
    assert torch.equal(net.state()["ids"], IDS)
    assert torch.equal(net.state()["qkv"], head.state["qkv"])


def test_a_block_has_no_slot_behind_its_last(target, batch, drafter):
    assert len(drafter.slots(batch, 2)) == 2
    with pytest.raises(ValueError, match="a block of 4 has no slot 5"):
        matches(drafter, batch, 5)


@pytest.mark.parametrize("end", [frozenset(), frozenset({19, 35})], ids=["open", "ended"])
@pytest.mark.parametrize("taught", [False, True], ids=["random", "taught"])
def test_a_teacher_forced_walk_counts_the_rounds_of_the_loop(target, taught, end):
    data = answered(target, tiny_examples(4, prompt=(2, 9)), 30, end)
    batch = batch_of(target, data, TAPS)
    drafter = learned(made(target, None, random=False, anchors=8), batch, 25) if taught else made(target)
    found, = tallies(drafter, [(batch, ["tiny"] * len(data))], 3)
    kept = {"block-diffusion": checkpoint("block-diffusion", drafter)}
    assert decode_live("block-diffusion(depth=3)", target, TokenizerFacts(end=end), data, kept) == found
    if taught and not end:
        assert found["tiny"].accepted[0] > 5
        assert found["tiny"].accepted[1] > 0


def test_the_checkpoint_of_the_default_target_stays_below_its_share_of_the_repository():
    shape = LlamaConfig(layers=3, hidden=576, heads=9, kv_heads=3, head_dim=64, mlp=1536, vocab=8192, context=2048,
                        tied=True)
    target = Transformer.random(shape)
    drafter = BlockDiffusionNet(target, torch.arange(8192), (1, 2, 3))
    tensors, about = pack(drafter.state(), recipe("block-diffusion").plan, base_matrix(target.weights, drafter.meta()))
    assert {about[name]["scheme"] for name in ("down", "layers.0.down", "layers.1.down")} == {"+rank80"}
    assert 3.0e6 < sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) < 3.6e6
