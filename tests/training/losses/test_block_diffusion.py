"""The loss of random blocks against plain loops; its anchors, its exclusions, its learning."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.training.eval.teacher_forced import tallies
from specdec_lib.training.fit import step
from specdec_lib.training.losses.block_diffusion import some_anchors
from specdec_lib.training.losses.distillation import DEPTH_WEIGHTS, SLOT_LOSSES
from specdec_lib.training.losses.objective import Objective
from tests.training.lessons import IDS, batch_of, learned
from tests.training.nets.test_block_diffusion import BLOCK, TAPS, made
from tests.training.tiny import tiny_examples, tiny_target


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def batch(target):
    return batch_of(target, tiny_examples(5), TAPS)


def by_hand(drafter, batch, slot: str, depth: str) -> tuple[float, float]:
    """(loss per anchor, its part from slots whose best token the head lacks), one slot at a time, every anchor."""
    with torch.no_grad():
        streams, rows = drafter.slots(batch), drafter.frozen.rows
        total, uncovered, anchors = 0.0, 0.0, 0
        for b, t in torch.cartesian_prod(*map(torch.arange, batch.tokens.shape)).tolist():
            if not batch.start[b] <= t + 1 < batch.stop[b]:
                continue
            anchors += 1
            parts, probs = torch.zeros(BLOCK), torch.zeros(BLOCK)
            alone = torch.zeros(BLOCK)
            for k in range(BLOCK):
                if t + 1 + k >= batch.stop[b]:
                    break
                raw = torch.zeros(40).scatter_(0, batch.top_ids[b, t + k], batch.top_logp[b, t + k].exp())
                said, x = raw[IDS], streams[k][b, t]
                p, best, logits = said / said.sum(), int(batch.top_ids[b, t + k, 0]), rows @ x
                e = drafter.frozen.embed(batch.tokens[b, t + k])
                e = e / (e.square().mean() + drafter.shape.eps).sqrt()
                among = logits.topk(drafter.candidates).indices
                u = logits[among] + rows[among] @ (drafter.correction @ e)
                q = torch.zeros(len(IDS)).scatter_(0, among, u.softmax(0))
                overlap = 1 - 0.5 * ((said - q).abs().sum() + 1 - said.sum())        # what the head lacks differs, too
                c = torch.sigmoid(torch.cat((x, e)) @ drafter.confidence)
                bce = -overlap * c.log() - (1 - overlap) * (1 - c).log()
                parts[k] = drafter.confidence_weight * bce
                if best in IDS.tolist():
                    probs[k] = logits.softmax(0)[IDS.tolist().index(best)]
                    parts[k] += SLOT_LOSSES[slot](logits[None], p[None])[0]
                    parts[k] -= drafter.correction_weight * (p[among] * u.log_softmax(0)).sum()
                else:
                    alone[k] = parts[k]
            weight = DEPTH_WEIGHTS[depth](probs[:, None])[:, 0]
            total, uncovered = total + float(weight @ parts), uncovered + float(weight @ alone)
    return total / anchors, uncovered / anchors


@pytest.mark.parametrize("depth", DEPTH_WEIGHTS)
@pytest.mark.parametrize("slot", SLOT_LOSSES)
def test_the_loss_equals_plain_loops_over_anchors_and_slots(target, batch, slot, depth):
    drafter = made(target, anchors=99)
    want, uncovered = by_hand(drafter, batch, slot, depth)
    assert Objective(slot, depth)(drafter, batch)[0].item() == pytest.approx(want, rel=1e-4)
    assert uncovered > 0 or depth == "streak"      # some slots teach the confidence alone; a streak ends there


def test_anchors_are_drawn_by_the_seed_among_those_that_a_token_of_the_answer_follows(batch):
    drawn = {seed: some_anchors(replace(batch, seed=seed), 3) for seed in range(6)}
    for anchors, there in drawn.values():
        assert anchors.shape == (5, 3)
        assert bool(there.all())
        assert all(len(set(row)) == 3 for row in anchors.tolist())
        follows = anchors + 1
        assert bool(((follows >= batch.start[:, None]) & (follows < batch.stop[:, None])).all())
    assert torch.equal(some_anchors(replace(batch, seed=2), 3)[0], drawn[2][0])
    assert len({tuple(anchors.flatten().tolist()) for anchors, _ in drawn.values()}) == 6


def test_of_an_example_with_few_anchors_each_is_taken_once(batch):
    anchors, there = some_anchors(batch, 50)
    assert anchors.shape[1] == int((batch.stop - batch.start).max())
    assert there.sum(1).tolist() == (batch.stop - batch.start).tolist()
    first = {int(row[ok].min()) for row, ok in zip(anchors, there, strict=True)}
    assert first == set((batch.start - 1).tolist())                    # the prompt's last token


def test_fewer_anchors_are_an_unbiased_part_of_all_of_them(target):
    batch = batch_of(target, tiny_examples(4, output=(6, 6)), TAPS)
    whole = Objective()(made(target, anchors=99), batch)[0].item()
    drafter = made(target, anchors=2)
    some = [Objective()(drafter, replace(batch, seed=seed))[0].item() for seed in range(60)]
    assert sum(some) / 60 == pytest.approx(whole, rel=0.05)
    assert max(some) > 1.05 * whole > whole > 1.05 * min(some)


def test_distributions_of_prompt_and_padding_and_tokens_behind_the_end_do_not_matter(target, batch):
    drafter, said = made(target, anchors=99), Objective("ce", "dpace")
    outside = ~batch.drafted(1)
    behind = torch.arange(batch.tokens.shape[1]) >= batch.stop[:, None]
    poisoned = replace(batch, tokens=batch.tokens.masked_fill(behind, 39),
                       top_ids=torch.where(outside[..., None], batch.top_ids.flip(-1), batch.top_ids),
                       top_logp=batch.top_logp.masked_fill(outside[..., None], -1.0))
    assert behind.any()
    assert said(drafter, poisoned)[0].item() == pytest.approx(said(drafter, batch)[0].item(), rel=1e-5)


def test_hidden_states_from_the_anchor_on_change_no_loss(target, batch):
    drafter, said = made(target, anchors=1), Objective()
    anchors, _ = some_anchors(batch, 1)
    spoiled = {level: stream.clone() for level, stream in batch.streams.items()}
    for stream in spoiled.values():
        stream[torch.arange(batch.tokens.shape[1]) >= anchors] += 3.0
    assert said(drafter, replace(batch, streams=spoiled))[0] == said(drafter, batch)[0]


def test_figures_are_one_number_per_slot(target, batch):
    drafter, said = made(target, 8, anchors=99), Objective()
    told = said(drafter, batch)[1]
    assert len(told["loss"]) == len(told["right"]) == BLOCK
    assert all(value > 0 for value in told["loss"])
    assert said(drafter, replace(batch, top_ids=batch.top_ids * 0 + 1))[1]["right"] == [0.0] * BLOCK


def test_it_overfits_one_batch_and_every_parameter_changes(target, batch):
    drafter = made(target, None, random=False, anchors=6)
    before = {name: parameter.clone() for name, parameter in drafter.named_parameters()}
    first, blank = Objective()(drafter, batch)
    last, told = Objective()(learned(drafter, batch, 60), batch)
    assert last < first - 0.8, (first, last)
    assert told["right"][0] > 0.6 > blank["right"][0], (blank, told)
    assert all(not torch.equal(parameter, before[name]) for name, parameter in drafter.named_parameters())


def test_a_batch_with_nothing_to_learn_costs_nothing(target, batch):
    loss, told = Objective("ce", "dpace")(made(target), replace(batch, start=batch.stop))
    assert loss.item() == 0
    assert told["loss"] == [0.0] * BLOCK


def test_a_target_in_half_precision_gives_nearly_the_same_loss(target, batch):
    half = Transformer(replace(random_weights(target.shape, 0, torch.bfloat16), norm=target.weights.norm.bfloat16()))
    losses = []
    for lm in (target, half):
        drafter = made(lm, anchors=99)
        losses.append(step(drafter, torch.optim.SGD(drafter.parameters(), lr=0.0), batch, Objective("mixed"), 1.0))
        found = tallies(drafter, [(batch, ["tiny"] * 5)], BLOCK)[0]["tiny"]
        assert found.tokens == int((batch.stop - batch.start).sum())
    assert losses[0]["loss"] == pytest.approx(losses[1]["loss"], rel=0.03)
    assert losses[1]["gradient"] > 0
