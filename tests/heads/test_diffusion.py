"""A diffusion language model drafts a block of tokens in one forward."""

import pytest
import torch

from specdec_lib.heads.diffusion import DiffusionLM, diffusion_lm, diffusion_weights
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import Draft, Refusal
from tests.heads.test_draft_lm import IDS, SHAPE, TARGET, state
from tests.worlds import Trained

TEXT = (4, 9, 20, 31, 8, 40, 2)
MASK = torch.randn(SHAPE.hidden, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
STATE = state(0, 2) | {"mask": MASK, "ids": torch.arange(3, 90, 2)}


def head(**options) -> DiffusionLM:
    return DiffusionLM(diffusion_weights(STATE, TARGET.weights), **options)


def by_hand(text, canvas, tensors=STATE, full=False) -> torch.Tensor:
    """Log-probabilities [1 + slots, ids] from one plain attention over everything; a slot is a token, or None.

    Where it is `full` the text sees the slots as well.
    """
    h, d, eps, size = SHAPE.hidden, SHAPE.head_dim, SHAPE.eps, len(text) + len(canvas)
    x = torch.stack([MASK if token is None else TARGET.weights.embedding[token] for token in (*text, *canvas)])
    seen = torch.ones(size, size, dtype=torch.bool).tril()
    seen[0 if full else len(text):] = True
    cos, sin = (table[:size] for table in TARGET.rope)
    layer = 0
    while f"layers.{layer}.qkv" in tensors:
        qkv, out, gate_up, down = (tensors[f"layers.{layer}.{name}"] for name in ("qkv", "out", "gate_up", "down"))
        q, k, v = (torch.nn.functional.rms_norm(x, (h,), eps=eps) @ qkv.T).view(size, -1, d).split(
            (SHAPE.heads, SHAPE.kv_heads, SHAPE.kv_heads), 1)
        q, k = (part * cos[:, None] + part.roll(d // 2, -1) * sin[:, None] for part in (q, k))
        k, v = (part.repeat_interleave(SHAPE.group, 1) for part in (k, v))
        weight = torch.einsum("ihd,jhd->hij", q, k).masked_fill(~seen, -torch.inf).softmax(-1)
        x = x + torch.einsum("hij,jhd->ihd", weight, v).reshape(size, -1) @ out.T
        gate, up = (torch.nn.functional.rms_norm(x, (h,), eps=eps) @ gate_up.T).chunk(2, -1)
        x = x + (torch.nn.functional.silu(gate) * up) @ down.T
        layer += 1
    x = torch.nn.functional.rms_norm(x[len(text) - 1:], (h,), tensors["norm"], eps)
    rows = TARGET.weights.embedding if SHAPE.tied else TARGET.weights.head.dense()
    return (x @ rows[tensors["ids"]].T).log_softmax(-1)


def spread(lattice) -> torch.Tensor:
    """Log-probabilities in the order of the vocabulary, from a lattice that holds all of them."""
    return lattice.logp.gather(1, lattice.ids.argsort(1))


def test_a_block_of_one_is_the_plain_small_model():
    lattice = head().lattice(TEXT, 1, top=5)
    want = draft_lm(STATE, TARGET.weights)(TEXT, Draft()).logits[0].log_softmax(-1).topk(5)
    assert torch.allclose(lattice.logp[0], want.values, rtol=0, atol=1e-12)
    assert lattice.ids[0].tolist() == STATE["ids"][want.indices].tolist()


@pytest.mark.parametrize("depth", [2, 5])
def test_a_block_is_one_forward_over_the_text_and_masks_that_see_each_other(depth):
    model = head()
    lattice = model.lattice(TEXT, depth, top=99)
    want = by_hand(TEXT, (None,) * (depth - 1))
    assert lattice.ids.shape == lattice.logp.shape == (depth, 44)
    assert model.forwards == 1
    assert float((spread(lattice) - want).abs().max()) < 1e-10
    assert (lattice.logp.diff(dim=1) <= 0).all()
    with_one_mask_fewer = by_hand(TEXT, (None,) * (depth - 2)) if depth > 2 else want[:1]
    assert torch.allclose(want[0], with_one_mask_fewer[0]), "the anchor sees no mask"
    assert depth == 2 or float((want[1] - with_one_mask_fewer[1]).abs().max()) > 1e-4, "masks see masks"


def test_unshifted_the_row_of_a_mask_predicts_its_own_token():
    lattice = head(shifted=False).lattice(TEXT, 3, top=99)
    assert float((spread(lattice) - by_hand(TEXT, (None,) * 3)[1:]).abs().max()) < 1e-10


@pytest.mark.parametrize("shifted", [True, False])
def test_with_full_attention_text_and_masks_all_see_each_other_and_every_slot_has_a_mask(shifted):
    model = head(shifted=shifted, attention="full")
    dists, want = model.dists(TEXT, 3), by_hand(TEXT, (None,) * 3, full=True)
    assert float((dists - (want[:3] if shifted else want[1:])).abs().max()) < 1e-10
    assert float((dists - head(shifted=shifted).dists(TEXT, 3)).abs().max()) > 1e-3, "causal is another model"
    assert (model.forwards, model.fed) == (1, len(TEXT) + 3)


def test_with_full_attention_all_rows_are_fed_again_and_a_committed_slot_is_seen_by_the_others():
    model = head(attention="full")
    model.dists(TEXT, 2)
    dists = model.dists(TEXT, 2, steps=2)
    assert (model.forwards, model.fed) == (3, 3 * (len(TEXT) + 2))
    first = by_hand(TEXT, (None, None), full=True)[:2]
    sure = int(first.max(-1).values.argmax())
    token = int(STATE["ids"][first[sure].argmax()])
    then = by_hand(TEXT, [token if slot == sure else None for slot in range(2)], full=True)
    assert torch.allclose(dists[sure], first[sure])
    assert torch.allclose(dists[1 - sure], then[1 - sure])


def test_the_window_of_full_attention_moves_token_by_token_since_nothing_is_kept():
    model, text = head(window=12, attention="full"), tuple(range(3, 60))
    assert [model.unseen(length, 4) for length in (1, 8, 9, 10, 21)] == [0, 0, 1, 2, 13]
    assert torch.allclose(model.dists(text, 4), head(attention="full").dists(text[-8:], 4))


def test_the_mask_may_be_a_token_of_the_vocabulary():
    weights = diffusion_weights(STATE | {"mask": TARGET.weights.embedding[50]}, TARGET.weights)
    for attention in ("causal", "full"):
        own, inside = (DiffusionLM(weights, attention=attention, mask=mask).dists(TEXT, 3) for mask in (None, 50))
        assert torch.equal(own, inside)


def test_a_checkpoint_says_itself_how_it_attends_and_other_ways_are_refused():
    full = diffusion_lm(Trained("diffusion-lm", STATE, {"attention": "full"}), TARGET.weights)
    assert torch.equal(full.dists(TEXT, 3), head(attention="full").dists(TEXT, 3))
    with pytest.raises(Refusal, match="attention is causal or full, got 'both'"):
        head(attention="both")


@pytest.mark.parametrize("shifted", [True, False])
def test_earlier_calls_change_nothing_and_only_new_tokens_are_fed(shifted):
    model, text, fed = head(shifted=shifted), TEXT, 0
    masks = 3 if shifted else 4
    for new in ((5,), (7, 11), (3,) * 9, ()):
        text += new
        lattice, before = model.lattice(text, 4, steps=1 + len(new) % 2), model.fed
        fresh = head(shifted=shifted).lattice(text, 4, steps=1 + len(new) % 2)
        assert torch.allclose(lattice.logp, fresh.logp)
        assert torch.equal(lattice.ids, fresh.ids)
        if len(new) % 2 == 0 and new:
            assert before - fed == len(new) + masks
        fed = model.fed
    assert torch.allclose(model.lattice(TEXT[:4], 2).logp, head(shifted=shifted).lattice(TEXT[:4], 2).logp)
    other = (*TEXT[:3], 77, *TEXT[4:])
    assert torch.allclose(model.lattice(other, 4).logp, head(shifted=shifted).lattice(other, 4).logp)


def test_after_rounds_of_other_drafters_missing_tokens_are_fed_with_the_block():
    model = head()
    model.lattice(TEXT, 4)
    before = model.fed, model.forwards
    model.lattice(TEXT + (5, 6, 7, 8, 9), 4)
    assert (model.fed - before[0], model.forwards - before[1]) == (5 + 3, 1)


def test_in_several_steps_the_most_confident_slots_are_committed_first_and_seen_by_the_others():
    model, depth, steps = head(), 5, 3
    lattice = model.lattice(TEXT, depth, steps, top=99)
    known, rows, ids = {}, {}, STATE["ids"]
    for share in (2, 2, 1):                        # of five, of three, of one
        dists = by_hand(TEXT, tuple(known.get(slot) for slot in range(depth - 1)))
        left = sorted((slot for slot in range(depth) if slot not in known), key=lambda slot: -dists[slot].max())[:share]
        rows |= {slot: dists[slot] for slot in left}
        known |= {slot: int(ids[dists[slot].argmax()]) for slot in left}
    assert model.forwards == steps
    assert float((spread(lattice) - torch.stack([rows[slot] for slot in range(depth)])).abs().max()) < 1e-10
    assert lattice.ids[:, 0].tolist() == [known[slot] for slot in range(depth)]
    assert float((lattice.logp - head().lattice(TEXT, depth, top=99).logp).abs().max()) > 1e-3


def test_more_steps_than_slots_are_as_many_as_slots():
    model = head()
    few, many = head().lattice(TEXT, 3, 3), model.lattice(TEXT, 3, 9)
    assert torch.equal(few.ids, many.ids)
    assert model.forwards == 3


def test_a_window_moves_in_strides_and_reports_the_unseen_tokens():
    model, text = head(window=12), tuple(range(3, 60))
    assert [model.unseen(length, 4) for length in (1, 9, 10, 15, 16, 21)] == [0, 0, 6, 6, 12, 12]
    for length in (9, 10, 15, 16, 40):
        cut = text[model.unseen(length, 4):length]
        assert len(cut) + 3 <= 12
        assert torch.allclose(model.lattice(text[:length], 4).logp, head().lattice(cut, 4).logp)
    assert head().window == SHAPE.context
    assert head(window=9999).window == SHAPE.context


def test_a_window_without_room_is_refused():
    with pytest.raises(Refusal, match="window of 12 tokens has no room for a draft of 7: draft fewer than 6"):
        head(window=12).lattice(TEXT, 7)
    with pytest.raises(Refusal, match="window of 3 tokens"):
        head(window=3)


@pytest.mark.parametrize("asked", [((), 2, 1), (TEXT, 0, 1), (TEXT, 2, 0)])
def test_a_lattice_without_tokens_slots_or_steps_is_an_error(asked):
    with pytest.raises(ValueError, match="at least one token, slot and step"):
        head().lattice(*asked)


def test_a_checkpoint_without_a_mask_is_refused_and_says_itself_whether_it_is_shifted():
    with pytest.raises(Refusal, match="lacks the tensor mask"):
        diffusion_weights(state(0) | {"ids": IDS}, TARGET.weights)
    assert diffusion_lm(Trained("diffusion-lm", STATE), TARGET.weights).shifted
    checkpoint = Trained("diffusion-lm", STATE, {"shifted": False})
    first, second = (diffusion_lm(checkpoint, TARGET.weights) for _ in range(2))
    assert not first.shifted
    assert first.model.weights is second.model.weights
    assert first.model is not second.model


def test_in_half_precision_log_probabilities_are_single_and_sum_to_one():
    shape = LlamaConfig(layers=2, hidden=24, heads=4, kv_heads=2, head_dim=6, mlp=40, vocab=97, context=64)
    target = Transformer.random(shape, dtype=torch.bfloat16)
    tensors = {f"layers.0.{name}": getattr(target.weights.layers[0], name).dense().float()
               for name in ("qkv", "out", "gate_up", "down")}
    model = DiffusionLM(diffusion_weights(tensors | {"norm": torch.ones(24), "mask": torch.ones(24), "ids": IDS},
                                          target.weights))
    lattice = model.lattice(TEXT, 3, top=16)
    assert lattice.logp.dtype == torch.float32
    assert model.model.dtype == torch.bfloat16
    assert torch.allclose(lattice.logp.exp().sum(-1), torch.ones(3), atol=1e-5)
    assert lattice.ids.shape == (3, len(IDS))
