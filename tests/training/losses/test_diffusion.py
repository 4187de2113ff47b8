"""The mix of losses against plain loops, and known values of the masked diffusion loss."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.training.data.features import Features
from specdec_lib.training.losses.block_masks import Blocks
from specdec_lib.training.losses.diffusion import Mix, diffusion_loss, draw_masks
from specdec_lib.training.losses.distillation import DEPTH_WEIGHTS, SLOT_LOSSES
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.base import Frozen
from tests.training.tiny import tiny_examples, tiny_target

IDS = torch.arange(0, 40, 2)                       # the head has every second token
TARGET = tiny_target()
FROZEN = Frozen(TARGET, IDS)
BATCH = Features(TARGET, tiny_examples(5), (), None)(range(5))
MASKED = Mix(draft=0, masked=1, text=0, noised=1.0, anchors=99, spacing=1)


def streams(drawn, seed: int = 0) -> torch.Tensor:
    """Free streams for every row of the texts and of the blocks."""
    rows = BATCH.tokens.numel() + drawn.blocks.anchors.numel() * drawn.blocks.rows
    return torch.randn(rows, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def by_hand(x, drawn, mix, objective) -> float:
    """The same mix, one slot at a time."""
    (count, size), rows = BATCH.tokens.shape, drawn.blocks.rows
    dist = torch.zeros(count, size, 40).scatter_(-1, BATCH.top_ids, BATCH.top_logp.exp())
    logits = x.detach() @ FROZEN.rows.T

    def teaches(b, t):                             # row t of text b, which is about token t + 1
        return BATCH.start[b] <= t + 1 < BATCH.stop[b] and int(BATCH.top_ids[b, t, 0]) % 2 == 0

    def loss(row, b, t):
        p = dist[b, t, IDS]
        return float(SLOT_LOSSES[objective.slot](logits[row], p / p.sum()))

    spoken = [loss(b * size + t, b, t) for b in range(count) for t in range(size) if teaches(b, t)]
    drafted, masked, kinds = 0.0, 0.0, drawn.whole[drawn.real]
    for b in range(count):
        for a in range(drawn.blocks.anchors.shape[1]):
            if not drawn.real[b, a]:
                continue
            anchor, first = int(drawn.blocks.anchors[b, a]), count * size + (b * drawn.real.shape[1] + a) * rows
            slots = [(k, b * size + anchor if k == 0 else first + k - 1) for k in range(int(drawn.blocks.lengths[b, a]))
                     if anchor + k < size and teaches(b, anchor + k)]
            probs = torch.zeros(drawn.blocks.size)
            for k, row in slots:
                probs[k] = logits[row].softmax(-1)[int(BATCH.top_ids[b, anchor + k, 0]) // 2]
            weights = DEPTH_WEIGHTS[objective.depth](probs[:, None])[:, 0]
            t = float(drawn.rates[b, a])
            for k, row in slots:
                if drawn.whole[b, a]:
                    drafted += float(weights[k]) * loss(row, b, anchor + k) / int(kinds.sum())
                elif drawn.masked[b, a, k]:
                    masked += min(1 / t, 10) * loss(row, b, anchor + k) / len(slots) / int((~kinds).sum())
    return mix.draft * drafted + mix.masked * masked + mix.text * sum(spoken) / len(spoken)


@pytest.mark.parametrize("slot", SLOT_LOSSES)
@pytest.mark.parametrize("depth", DEPTH_WEIGHTS)
@pytest.mark.parametrize("sizes", [(4,), (1, 3, 5)])
def test_the_mix_equals_plain_loops_over_blocks_and_slots(slot, depth, sizes):
    mix, objective = Mix(0.7, 1.3, 0.4, 0.5, 3, 1), Objective(slot, depth)
    drawn = draw_masks(replace(BATCH, seed=4), mix, sizes)
    assert drawn.whole[drawn.real].any()
    assert not drawn.whole[drawn.real].all()
    x = streams(drawn)
    found, told = diffusion_loss(x, FROZEN, BATCH, drawn, mix, objective)
    assert found.item() == pytest.approx(by_hand(x, drawn, mix, objective), rel=1e-4)
    alone = diffusion_loss(x, FROZEN, BATCH, replace(drawn, real=drawn.real & drawn.whole), mix, objective)[1]
    for name, values in told.items():
        assert values == pytest.approx(alone[name], rel=1e-5), "figures are those of wholly masked blocks"


def test_only_rows_that_are_about_a_token_of_an_answer_are_learned():
    mix = Mix(anchors=99, spacing=1)
    drawn = draw_masks(BATCH, mix, (3, 5))
    x, size = streams(drawn), BATCH.tokens.shape[1]
    diffusion_loss(x, FROZEN, BATCH, drawn, mix, Objective())[0].backward()
    learned = x.grad.abs().amax(-1) > 0
    text, behind = learned[:BATCH.tokens.numel()].view(5, size), learned[BATCH.tokens.numel():].view(5, -1, 4)
    assert text.any()
    assert not (text & ~BATCH.drafted(1)).any()
    assert behind.any()
    places = drawn.blocks.places()
    assert not (behind & (places + 1 >= BATCH.stop[:, None, None])).any()
    assert not (behind & (torch.arange(1, 5) >= drawn.blocks.lengths[..., None])).any()
    assert not (behind & ~drawn.masked[..., 1:]).any(), "a token that is shown is not asked for"


def test_a_model_certain_of_the_true_tokens_has_no_masked_loss():
    """Unit test (a) of masked diffusion losses."""
    sure = replace(BATCH, top_logp=torch.full_like(BATCH.top_logp, -torch.inf).index_fill_(-1, torch.tensor(0), 0.0))
    eye = SimpleNamespace(rows=torch.eye(40), columns=torch.arange(40))
    eye.labels = lambda batch, ahead, kind: Frozen.distribution(eye, batch, ahead)
    drawn = draw_masks(sure, MASKED, (4,))
    count, size = sure.tokens.shape
    best = torch.nn.functional.one_hot(sure.top_ids[..., 0], 40) * 200.0
    places = torch.cat((drawn.blocks.anchors[..., None], drawn.blocks.places()), -1).clamp(max=size - 1)
    behind = best[torch.arange(count)[:, None, None], places][:, :, 1:]
    x = torch.cat((best.flatten(0, 1), behind.flatten(0, 2)))
    assert float(diffusion_loss(x, eye, sure, drawn, MASKED, Objective())[0]) == 0
    wrong = x.roll(1, -1)
    assert float(diffusion_loss(wrong, eye, sure, drawn, MASKED, Objective())[0]) > 100


def test_a_uniform_model_has_the_loss_log_of_its_vocabulary():
    """Unit test (b), with what clipping 1 / t at 10 takes of it."""
    found = []
    for seed in range(60):
        drawn = draw_masks(replace(BATCH, seed=seed), MASKED, (4,))
        x = torch.zeros_like(streams(drawn)).detach()
        blocks = float((drawn.real & ~drawn.whole).sum())
        taught = teaching_blocks(drawn)
        found.append(float(diffusion_loss(x, FROZEN, BATCH, drawn, MASKED, Objective())[0]) * blocks / taught)
    assert sum(found) / len(found) == pytest.approx(0.98684 * math.log(len(IDS)), rel=0.05)


def teaching_blocks(drawn) -> int:
    """Blocks with a slot whose best token the head knows; the others can have no loss."""
    known = BATCH.drafted(1) & (BATCH.top_ids[..., 0] % 2 == 0)
    out = 0
    for b in range(len(known)):
        for anchor in drawn.blocks.anchors[b][drawn.real[b]].tolist():
            out += bool(known[b, anchor:anchor + drawn.blocks.size].any())
    return out


def test_the_shares_of_a_mix_add_up():
    drawn = draw_masks(BATCH, Mix(noised=0.5, spacing=1), (4, 6))
    x, parts = streams(drawn), []
    for name in ("draft", "masked", "text"):
        mix = Mix(**{"draft": 0, "masked": 0, "text": 0, "noised": 0.5} | {name: 1})
        parts.append(diffusion_loss(x, FROZEN, BATCH, drawn, mix, Objective())[0].item())
    whole = diffusion_loss(x, FROZEN, BATCH, drawn, Mix(2, 3, 5, 0.5), Objective())[0].item()
    assert min(parts) > 0
    assert whole == pytest.approx(2 * parts[0] + 3 * parts[1] + 5 * parts[2], rel=1e-5)


def test_there_is_a_block_for_every_few_tokens_up_to_a_limit():
    size = BATCH.tokens.shape[1]
    blocks = [draw_masks(BATCH, mix, (4,)).blocks.anchors.shape[1]
              for mix in (Mix(spacing=1), Mix(spacing=4), Mix(spacing=99), Mix(anchors=2, spacing=1))]
    assert blocks == [size, size // 4, 1, 2]


def test_all_of_a_step_follows_from_its_seed_and_another_seed_draws_another():
    one, same, other = (draw_masks(replace(BATCH, seed=seed), Mix(spacing=1), (4, 8)) for seed in (1, 1, 2))
    for name in ("real", "whole", "rates", "masked"):
        assert torch.equal(getattr(one, name), getattr(same, name))
    assert torch.equal(one.blocks.anchors, same.blocks.anchors)
    assert not torch.equal(one.rates, other.rates)
    assert not torch.equal(one.blocks.anchors, other.blocks.anchors)
    assert set(one.blocks.lengths.unique().tolist()) == {4, 8}
    assert one.masked[one.whole].all()


def test_a_batch_with_nothing_to_learn_costs_nothing():
    nothing = replace(BATCH, start=BATCH.stop)
    drawn = draw_masks(nothing, Mix(), (4,))
    loss, told = diffusion_loss(streams(drawn), FROZEN, nothing, drawn, Mix(), Objective("ce", "dpace"))
    assert loss.item() == 0
    assert told["right"] == [0.0] * 4
    assert isinstance(drawn.blocks, Blocks)
