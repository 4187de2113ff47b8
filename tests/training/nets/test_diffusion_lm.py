"""A diffusion language model in training equals the model that drafts at inference, and sees no more than it."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.cards import TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import load_checkpoint, save_checkpoint
from specdec_lib.heads.diffusion import diffusion_lm
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.eval.decoding import decode_live
from specdec_lib.training.eval.teacher_forced import matches, tallies, walk_answer
from specdec_lib.training.fit import step
from specdec_lib.training.losses.diffusion import Mix, draw_masks
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.diffusion_lm import DiffusionNet, spread_layers
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.recipes import recipe
from tests.training.lessons import IDS, answered, batch_of, checkpoint, learned, logits, stirred
from tests.training.tiny import tiny_examples, tiny_target

ALL = Mix(draft=1, masked=0, text=0, noised=0, anchors=99, spacing=1)         # every anchor, wholly masked


def made(target, **options) -> DiffusionNet:
    return DiffusionNet(target, IDS, **{"chosen": (0, 1, 3), "blocks": (2, 4), "rank": 3} | options)


@pytest.fixture(scope="module")
def batch(target, data):
    return batch_of(target, data)


def head(drafter, target):
    return diffusion_lm(checkpoint("diffusion-lm", drafter), target.weights)


@pytest.mark.parametrize(("rank", "random"), [(3, False), (None, False), (3, True)])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_its_slots_equal_the_block_at_inference_at_every_anchor(target, data, batch, rank, random, depth):
    drafter = stirred(made(target, rank=rank, random=random))
    with torch.no_grad():
        slots = [x @ drafter.frozen.rows.T for x in drafter.slots(batch, depth)]
    assert len(slots) == depth
    for i, example in enumerate(data):
        model = head(drafter, target)
        for t in range(min(len(e.prompt) for e in data) - 1, len(example)):
            there = model.dists(example.tokens[:t + 1], depth)
            for k in range(depth):
                assert torch.allclose(slots[k][i, t].log_softmax(-1), there[k], atol=1e-4), (i, t, k)


def test_a_block_that_was_partly_filled_is_in_training_what_a_later_step_is_at_inference(target, data, batch):
    drafter = stirred(made(target))
    model, size = head(drafter, target), drafter.depth
    drawn = draw_masks(replace(batch, seed=3), Mix(noised=1.0, anchors=4, spacing=1), (size,))
    with torch.no_grad():
        before = drafter.read(batch.tokens)[1]
        behind = drafter.behind(batch.tokens, drawn.blocks, drawn.masked[..., :-1], before)
        x = torch.nn.functional.rms_norm(behind, (16,), drafter.norm, target.shape.eps) @ drafter.frozen.rows.T
    shown = 0
    for i, example in enumerate(data):
        for a, anchor in enumerate(drawn.blocks.anchors[i].tolist()):
            if not drawn.real[i, a] or anchor + size > len(example):
                continue
            known = {k: example.tokens[anchor + 1 + k] for k in range(size - 1) if not drawn.masked[i, a, k]}
            there = model.once(example.tokens[:anchor + 1], size, known)
            assert torch.allclose(x[i, a].log_softmax(-1), there[1:], atol=1e-4)
            shown += len(known)
    assert shown > 5


def test_a_block_of_one_is_the_plain_draft_model_with_the_same_loss(target, batch):
    """Unit test (c) of masked diffusion losses."""
    diffusion, plain = made(target, blocks=(1,), mix=ALL), DraftLMNet(target, IDS, (0, 1, 3))
    assert torch.allclose(logits(diffusion, batch)[0], logits(plain, batch)[0], atol=1e-5)
    mine, theirs = (Objective()(drafter, batch) for drafter in (diffusion, plain))
    every = batch.drafted(1).sum() / (batch.drafted(1).flatten() & plain.frozen.distribution(batch, 0).covered).sum()
    assert mine[0].item() * float(every) == pytest.approx(theirs[0].item(), rel=1e-5)     # it counts all anchors
    spoken = made(target, blocks=(1,), mix=replace(ALL, draft=0, text=1))
    assert Objective()(spoken, batch)[0].item() == pytest.approx(theirs[0].item(), rel=1e-5)


@pytest.mark.parametrize("t", [3, 6])
def test_it_sees_the_anchor_and_no_token_after_it_and_no_label(target, batch, t):
    drafter = stirred(made(target))
    clean = logits(drafter, batch)
    later, last = batch.tokens.clone(), batch.tokens.clone()
    later[:, t + 1:] = (later[:, t + 1:] + 7) % 40
    last[:, t] = (last[:, t] + 7) % 40
    labels = replace(batch, tokens=later, top_ids=batch.top_ids.flip(-1), top_logp=batch.top_logp * 0)
    for k, (slot, other) in enumerate(zip(logits(drafter, labels), clean, strict=True)):
        assert torch.equal(slot[:, :t + 1], other[:, :t + 1]), k
    for slot, other in zip(logits(drafter, replace(batch, tokens=last)), clean, strict=True):
        assert not torch.allclose(slot[:, t], other[:, t])


def test_a_hidden_token_and_the_text_behind_the_anchor_reach_no_row_of_a_training_block(target, batch):
    drafter = stirred(made(target))
    drawn = draw_masks(replace(batch, seed=1), Mix(noised=0.5, spacing=1), (4,))

    def behind(tokens):
        with torch.no_grad():
            return drafter.behind(tokens, drawn.blocks, drawn.masked[..., :-1], drafter.read(tokens)[1])

    clean = behind(batch.tokens)
    changed = 0
    for t in range(int(batch.start.min()), batch.tokens.shape[1]):
        tokens = batch.tokens.clone()
        tokens[:, t] = (tokens[:, t] + 7) % 40
        same = torch.isclose(behind(tokens), clean, atol=1e-6).flatten(2).all(-1)
        slot = t - drawn.blocks.anchors - 1        # of token t in each block
        inside = (slot >= 0) & (slot < 3)
        hidden = drawn.masked.gather(2, slot.clamp(0, 3)[..., None])[..., 0] | ~inside
        unseen = (slot >= 0) & hidden
        assert same[unseen].all()
        assert not same[~unseen].any()
        changed += int((~unseen & inside).sum())
    assert changed, "some tokens were shown"


def test_a_label_is_not_an_input(target, batch):
    mix = Mix(text=0, noised=1.0, anchors=1, spacing=1)
    drafter, shown = stirred(made(target, blocks=(4,), mix=mix)), 0
    for seed in range(8):
        now = replace(batch, seed=seed)
        drawn, clean = draw_masks(now, mix, (4,)), Objective()(drafter, now)[0].item()
        for b, slot in torch.cartesian_prod(torch.arange(3), torch.arange(3)).tolist():
            t = int(drawn.blocks.anchors[b, 0]) + 1 + slot
            if t < int(batch.stop[b]):
                tokens = now.tokens.clone()
                tokens[b, t] = (tokens[b, t] + 7) % 40
                same = Objective()(drafter, replace(now, tokens=tokens))[0].item() == pytest.approx(clean, rel=1e-6)
                assert same or not drawn.masked[b, 0, slot]
                shown += not same
    assert shown


def test_blocks_of_several_sizes_do_not_see_the_rows_that_a_short_one_lacks(target, batch):
    drafter = stirred(made(target, blocks=(2, 4)))
    before = drafter.read(batch.tokens)[1]
    drawn = draw_masks(batch, Mix(noised=0.0, spacing=1), (2, 4))
    with torch.no_grad():
        mixed = drafter.behind(batch.tokens, drawn.blocks, None, before)
        alone = drafter.behind(batch.tokens, replace(drawn.blocks, size=2), None, before)
    short = drawn.blocks.lengths == 2
    assert short.any()
    assert torch.allclose(mixed[short][:, 0], alone[short][:, 0], atol=1e-5)
    assert not torch.allclose(mixed[~short][:, 0], alone[~short][:, 0], atol=1e-3)


@pytest.mark.parametrize("depth", ["decay", "dpace"])
def test_it_learns_a_small_set_and_every_slot_of_it(target, depth):
    data = answered(target, tiny_examples(4), 12)
    batch, drafter = batch_of(target, data), made(target, rank=16, mix=Mix(anchors=16, spacing=1))
    optimiser = torch.optim.Adam(drafter.parameters(), lr=0.02)
    told = []
    for place in range(60):
        optimiser.zero_grad()
        loss, line = Objective("ce", depth)(drafter, replace(batch, seed=place))
        loss.backward()
        optimiser.step()
        told.append(line)
    for k in range(4):
        late = [line["right"][k] for line in told[-10:]]
        early = [line["right"][k] for line in told[:3]]
        assert sum(late) / 10 > sum(early) / 3 + 0.3, k
    assert all(bool(parameter.grad.abs().sum() > 0) for parameter in drafter.parameters())


@pytest.mark.parametrize("end", [frozenset(), frozenset({19, 35})], ids=["whole", "ending early"])
def test_a_walk_counts_the_rounds_of_the_loop(target, end):
    data = answered(target, tiny_examples(12, prompt=(2, 9), seed=4), 30, end)
    assert bool(end) == any(example.output[-1] in end for example in data)
    batch = batch_of(target, data)
    drafter = learned(made(target, rank=16, mix=Mix(noised=0, spacing=1)), batch, 60)
    found = tallies(drafter, [(batch, ["tiny"] * len(data))], 4)[0]
    assert found["tiny"].accepted[0] > 5
    assert found["tiny"].accepted[1] > 0
    stored = {"diffusion-lm": checkpoint("diffusion-lm", drafter)}
    assert decode_live("diffusion-draft(depth=4)", target, TokenizerFacts(end=end), data, stored) == found
    right, = matches(drafter, batch, 4)
    by_hand = [walk_answer(right[:, i], len(example.prompt), len(example)) for i, example in enumerate(data)]
    assert sum(tally.rounds for tally in by_hand) == found["tiny"].rounds


def test_loaded_tensors_draft_the_same_at_every_rank(target, batch):
    drafter = stirred(made(target))
    for rank in (2, 3, None):
        other = made(target, rank=rank)
        assert not torch.allclose(logits(other, batch)[1], logits(drafter, batch)[1])
        other.take(drafter.state())
        for one, same in zip(logits(other, batch), logits(drafter, batch), strict=True):
            assert torch.allclose(one, same, atol=1e-6)


def test_what_was_trained_at_a_rank_is_stored_at_that_rank_at_the_cost_of_rounding(tmp_path):
    target = tiny_target(hidden=64, head_dim=16)
    drafter, plan = stirred(DiffusionNet(target, IDS, (0, 3), rank=8)), dict(recipe("diffusion-lm").plan)
    card = {"target": "tiny", "made": {}, "settings": {}, "measured": {}, "limits": []}
    ranks = {}
    for rank in (8, 4):
        plan["layers.*"] = f"+rank{rank}"
        save_checkpoint(tmp_path, "d", drafter.state(), drafter.meta(), card, plan, target.weights, {})
        back = load_checkpoint(tmp_path, "d", target.weights).state
        start = DiffusionNet(target, IDS, (0, 3)).state()
        change = {name: drafter.state()[name] - start[name] for name in back if name.startswith("layers")}
        ranks[rank] = max(float((back[name] - drafter.state()[name]).norm() / change[name].norm()) for name in change)
    assert ranks[8] < 0.02 < 0.1 < ranks[4]


def test_the_default_is_six_layers_with_the_ends_among_them_or_half_of_a_small_target():
    assert spread_layers(30) == (0, 6, 12, 17, 23, 29)
    assert spread_layers(6) == (0, 2, 5)
    assert spread_layers(1) == spread_layers(2) == (0,)
    assert spread_layers(30, 8) == (0, 4, 8, 12, 17, 21, 25, 29)


def test_stored_tensors_have_the_names_that_inference_reads(target):
    drafter = made(target)
    layer = {f"layers.{i}.{name}" for i in range(3) for name in ("qkv", "out", "gate_up", "down")}
    assert set(drafter.state()) == layer | {"norm", "mask", "ids"}
    assert drafter.meta() == {"layers": [0, 1, 3], "blocks": [2, 4], "shifted": True}
    assert not list(drafter.frozen.parameters())
    assert torch.allclose(drafter.mask, target.weights.embedding.mean(0))


def test_padding_does_not_change_the_loss(target, data, batch):
    drafter = stirred(made(target))
    behind = torch.arange(batch.tokens.shape[1]) >= batch.stop[:, None]
    other: Batch = replace(batch, tokens=batch.tokens.masked_fill(behind, 39))
    assert behind.any()
    assert not torch.equal(other.tokens, batch.tokens)
    assert Objective()(drafter, other)[0].item() == pytest.approx(Objective()(drafter, batch)[0].item(), rel=1e-6)


def test_in_half_precision_a_step_works_and_parameters_stay_single():
    target = tiny_target()
    half = Transformer(random_weights(target.shape, dtype=torch.bfloat16))
    batch, drafter = batch_of(half, tiny_examples(3)), made(half)
    line = step(drafter, torch.optim.Adam(drafter.parameters(), lr=0.01), batch, Objective("ce", "dpace"), 1.0)
    assert 0 < line["loss"] < 99
    assert line["gradient"] > 0
    assert all(tensor.dtype == torch.float32 and bool(tensor.isfinite().all()) for tensor in drafter.parameters())
    assert matches(drafter, batch, 3)[0].shape == (3, *batch.tokens.shape)
