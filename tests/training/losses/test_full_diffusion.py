"""A fully bidirectional model is trained on hidden tokens alone, sees clean tokens on both sides, and learns."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.checkpoints.checkpoint_files import load_checkpoint, save_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.heads.diffusion import diffusion_lm
from specdec_lib.training.fit import Settings, fit
from specdec_lib.training.losses import full_diffusion
from specdec_lib.training.losses.full_diffusion import (
    RATES,
    draw_hidden,
    fill_quality,
    full_diffusion_loss,
    streams,
    visible_columns,
)
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.diffusion_lm import DiffusionNet
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.recipes import recipe, start
from tests.training.lessons import IDS, answered, batch_of, checkpoint, logits, stirred
from tests.training.tiny import tiny_examples

EVERY = torch.arange(40)


def made(target, ids=IDS, **options) -> DiffusionNet:
    return DiffusionNet(target, ids, **{"chosen": (0, 1, 3), "rank": 3, "attention": "full"} | options)


@pytest.fixture(scope="module")
def batch(target, data):
    return batch_of(target, data)


def read(drafter, batch, masked, share: float = 1.0) -> torch.Tensor:
    with torch.no_grad():
        return streams(drafter, batch.tokens, masked, visible_columns(batch, share))


def test_a_hidden_token_reaches_no_row_and_a_clean_one_on_either_side_reaches_all_of_its_text(target, batch):
    drafter, drawn = stirred(made(target)), draw_hidden(replace(batch, seed=2))
    clean, hidden = read(drafter, batch, drawn.masked), 0
    for b, size in enumerate(batch.stop.tolist()):
        for t in range(batch.tokens.shape[1]):
            tokens = batch.tokens.clone()
            tokens[b, t] = (tokens[b, t] + 7) % 40
            now = read(drafter, replace(batch, tokens=tokens), drawn.masked)
            if drawn.masked[b, t]:
                assert torch.equal(now, clean)
            elif t < size:
                assert not torch.isclose(now[b, :size], clean[b, :size], atol=1e-6).all(-1).any(), (b, t)
                assert torch.equal(now[torch.arange(3) != b], clean[torch.arange(3) != b])
            else:
                assert torch.equal(now[b, :size], clean[b, :size])     # padding is seen by nothing
            hidden += int(drawn.masked[b, t])
    assert hidden > 4
    assert not drawn.masked[~batch.drafted(0)].any()


def test_only_the_row_before_a_hidden_token_is_trained_on_it(target, batch):
    drafter, shown = stirred(made(target)), replace(batch, seed=2)
    masked = draw_hidden(shown).masked
    ask = full_diffusion.masked_rows(drafter, shown, masked)
    want = {(b, t - 1) for b, t in masked.nonzero().tolist() if int(batch.tokens[b, t]) in IDS}
    assert set(map(tuple, ask.rows.nonzero().tolist())) == want
    clean = float(full_diffusion_loss(drafter, shown, Objective())[0].detach())
    for b, t in want:                              # and its label, which nothing shows, counts
        tokens = batch.tokens.clone()
        tokens[b, t + 1] = next(i for i in IDS.tolist() if i != int(tokens[b, t + 1]))
        other = full_diffusion_loss(drafter, replace(shown, tokens=tokens), Objective())[0].detach()
        assert float(other) != clean


def test_it_fills_in_training_what_it_fills_at_inference(target, data):
    drafter = stirred(made(target))
    model, depth = diffusion_lm(checkpoint("diffusion-lm-full", drafter), target.weights), 4
    for example in data:
        batch = batch_of(target, [replace(example, output=example.output[:depth])])
        start, masked = len(example.prompt), torch.zeros_like(batch.tokens) > 0
        masked[0, start:] = torch.tensor([True, False, True, True])
        x = read(drafter, batch, masked)[0, start - 1:start - 1 + depth] @ drafter.frozen.rows.T
        there = model.once(example.prompt, depth, {1: example.output[1]})
        assert torch.allclose(x.log_softmax(-1), there, atol=1e-4)


def test_with_nothing_opened_and_nothing_hidden_before_it_a_row_has_the_loss_of_the_language_model(target, batch):
    """Unit test (c) of masked diffusion losses: the shift is kept, so training starts from a language model."""
    drafter, plain = made(target), logits(DraftLMNet(target, IDS, (0, 1, 3)), batch)[0]
    dice = torch.Generator().manual_seed(1)
    for _ in range(5):
        masked = (torch.rand(batch.tokens.shape, generator=dice) < 0.4) & batch.drafted(0)
        rows = read(drafter, batch, masked, 0.0) @ drafter.frozen.rows.T
        for b in range(3):
            first = int(torch.cat((masked[b], torch.tensor([True]))).float().argmax())
            assert torch.allclose(rows[b, :first], plain[b, :first], atol=1e-5)
            assert not torch.allclose(rows[b, first:], plain[b, first:], atol=1e-3) or not masked[b].any()


def test_a_model_certain_of_the_true_tokens_has_loss_zero(batch, monkeypatch):
    """Unit test (a)."""
    eye = SimpleNamespace(frozen=SimpleNamespace(rows=torch.eye(40), columns=EVERY), anneal=0)
    true = torch.nn.functional.one_hot(batch.later(batch.tokens, 1), 40) * 200.0
    monkeypatch.setattr(full_diffusion, "streams", lambda *told: true)
    assert float(full_diffusion_loss(eye, batch, Objective())[0]) == 0
    monkeypatch.setattr(full_diffusion, "streams", lambda *told: true.roll(1, -1))
    assert float(full_diffusion_loss(eye, batch, Objective())[0]) > 50


def test_a_uniform_model_has_the_loss_log_of_its_vocabulary(target, batch):
    """Unit test (b), with what clipping 1 / t at 10 takes of it."""
    drafter = made(target, EVERY)
    with torch.no_grad():
        drafter.norm.zero_()
        found = [float(full_diffusion_loss(drafter, replace(batch, seed=seed), Objective())[0]) for seed in range(200)]
    assert sum(found) / len(found) == pytest.approx(0.98684 * math.log(40), rel=0.05)


def test_later_columns_are_opened_gradually_or_from_the_start(batch):
    size, real = batch.tokens.shape[1], torch.arange(batch.tokens.shape[1]) < batch.stop[:, None]
    before = torch.ones(size, size).tril() > 0
    assert torch.equal(visible_columns(batch, 0.0)[:, 0], before & real[:, None])
    assert torch.equal(draw_hidden(batch).seen[:, 0], real[:, None].expand(-1, size, -1))
    behind = ~before & real[:, None]
    shares = []
    for step in (0, 4, 9, 30):
        seen = torch.stack([draw_hidden(replace(batch, step=step, seed=seed), 10).seen[:, 0] for seed in range(30)])
        assert seen[:, before & real[:, None]].all()
        shares.append(float(seen[:, behind].float().mean()))
    assert shares == pytest.approx([0.1, 0.5, 1, 1], abs=0.05)
    assert shares[2:] == [1, 1]


def test_the_annealing_of_a_drafter_follows_the_steps_of_its_fit(target, batch, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(full_diffusion, "draw_hidden", lambda batch, anneal: seen.append((batch.step, anneal))
                        or draw_hidden(batch, anneal))
    fit(made(target, anneal=7), [(0,)] * 2, lambda group: batch, Objective(), Settings(steps=3), tmp_path)
    assert seen == [(0, 7), (1, 7), (2, 7)]


def test_it_learns_to_fill_the_answers_of_a_small_set(target, tmp_path):
    data = answered(target, tiny_examples(6), 12)
    batch, drafter = batch_of(target, data), made(target, EVERY, rank=16)
    before = fill_quality(drafter, [(batch, [])])
    fit(drafter, [(0,)], lambda group: batch, Objective(), Settings(steps=80, rate=0.02), tmp_path)
    after = fill_quality(drafter, [(batch, [])])
    assert before["rates"] == list(RATES)
    assert before["tokens"] == after["tokens"]
    assert after["tokens"][-1] == 72
    nats = zip(after["nats_per_token"], before["nats_per_token"], strict=True)
    assert all(late < early - 0.5 for late, early in nats)
    assert after["right"][0] > before["right"][0] + 0.3
    assert all(bool(parameter.grad.abs().sum() > 0) for parameter in drafter.parameters())


def test_what_is_stored_fills_like_what_was_trained(target, batch, tmp_path):
    which = recipe("diffusion-lm-full")
    drafter = stirred(start(which, target, SimpleNamespace(ids=IDS)))
    card = {"target": "tiny", "made": {}, "settings": {}, "measured": {}, "limits": []}
    save_checkpoint(tmp_path, which.name, drafter.state(), drafter.meta(), card, which.plan, target.weights,
                    fingerprint(target, None))
    stored, other = load_checkpoint(tmp_path, which.name, target.weights), start(which, target,
                                                                                 SimpleNamespace(ids=IDS), True)
    other.take(stored.state)
    assert stored.meta["attention"] == "full"
    assert stored.meta["shifted"]
    assert which.fills
    mine, its = (read(one, batch, batch.drafted(0)) for one in (drafter, other))
    assert float((mine - its).norm()) < 0.05 * float(mine.norm())


def test_it_has_no_slots_and_no_third_attention(target, batch):
    with pytest.raises(ValueError, match="fills whole texts and has no slots"):
        made(target).slots(batch)
    with pytest.raises(ValueError, match="attention is causal or full, got 'both'"):
        made(target, attention="both")


def test_a_batch_with_nothing_to_learn_costs_nothing(target, batch):
    loss, told = full_diffusion_loss(made(target), replace(batch, start=batch.stop), Objective())
    assert float(loss.detach()) == 0
    assert told == {"loss": [0.0] * 4, "right": [0.0] * 4}
