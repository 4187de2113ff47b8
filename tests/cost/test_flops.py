"""Counted work equals a count of every matrix and every row, and the forwards that are run."""

from types import SimpleNamespace

import pytest
import torch

from specdec_lib.cost.flops import Work, draft_matrices, expected_work, layer_matrices, matrix_size, total_work
from specdec_lib.loop import begin
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.training.eval.break_even import method_of
from specdec_lib.training.recipes import start
from specdec_lib.types import NO_DICE, Budget
from tests.training.lessons import checkpoint, ready
from tests.training.tiny import tiny_target

SMOL = LlamaConfig(layers=30, hidden=576, heads=9, kv_heads=3, head_dim=64, mlp=1536, vocab=49152, context=2048,
                   tied=True)
LAYER = 576 * (9 + 3 + 3 + 9) * 64 + 3 * 576 * 1536


def shaped(layers: int, rows: int, **more) -> dict:
    """The tensors of a drafter of so many layers and output rows; nothing is stored for them."""
    sizes = {"qkv": (15 * 64, 576), "out": (576, 576), "gate_up": (3072, 576), "down": (576, 1536)}
    state = {f"layers.{i}.{name}": torch.empty(shape, device="meta") for i in range(layers)
             for name, shape in sizes.items()}
    return state | {"ids": torch.empty(rows, device="meta"), "norm": torch.empty(576, device="meta")} | more


@pytest.mark.parametrize(("layers", "rows", "share"), [(3, 8192, .114), (3, 49152, .289), (1, 8192, .061),
                                                       (4, 16384, .175)])
def test_one_forward_of_a_small_model_costs_the_share_of_the_weights_that_it_reads(layers, rows, share):
    """Without a context: (layers x 3.54 M + rows x 576) of 134.5 M numbers."""
    draft, verify = expected_work(shaped(layers, rows), {"layers": []}, SMOL, 1, 0, 1)
    assert draft.read == pytest.approx(share, abs=6e-4)
    assert draft.read == draft.products
    assert verify == Work(1.0, 2.0)


def test_a_block_is_read_once_and_a_chain_once_for_every_token():
    block, chain = (expected_work(shaped(6, 8192), meta, SMOL, 8, 0, 2)[0] for meta in ({"blocks": [8]}, {}))
    head, plain = 8192 * 576, 30 * LAYER + 49152 * 576
    assert block.read * plain == pytest.approx(6 * LAYER + head)
    assert chain.read == pytest.approx(8 * block.read)
    assert block.products == chain.products == pytest.approx((9 * 6 * LAYER + 8 * head) / plain)


def test_a_drafter_in_fewer_bits_reads_less_and_multiplies_as_much():
    whole, half = (expected_work(shaped(3, 8192), {"layers": []}, SMOL, 4, 256, 2, size=size) for size in (1, .5))
    state = expected_work(shaped(3, 8192), {"layers": []}, SMOL, 4, 0, 2)[0].read
    assert whole[0].products == half[0].products
    assert whole[1] == half[1]
    assert whole[0].read - half[0].read == pytest.approx(state / 2, rel=.05)      # keys and values keep their size


def test_a_context_adds_its_keys_and_values_to_both_sides():
    assert total_work(layer_matrices(SMOL, 2, 1, 4, 100)) == Work(2 * LAYER + 2 * 100 * 2 * 192,
                                                                  4 * (2 * LAYER + 2 * 100 * 2 * 576))
    drafters = {"block": {"block": 4, "candidates": 0}, "blocks": {"blocks": [4]}, "chain": {}}
    near, far = ({name: total_work(draft_matrices(shaped(2, 10), meta, SMOL, 4, context, 1))
                  for name, meta in drafters.items()} for context in (0, 100))
    assert [far[name].read - near[name].read for name in drafters] == [2 * 2 * 100 * 192] * 2 + [4 * 2 * 2 * 100 * 192]
    assert {far[name].products - near[name].products for name in drafters} == {4 * 2 * 2 * 100 * 576}


def test_an_exit_drafts_with_the_targets_layers_and_leaves_their_rows_to_it():
    state = {"ids": torch.zeros(10), "exit.12.down": torch.zeros(8, 576), "exit.12.up": torch.zeros(576, 8)}
    head, plain = 49152 * 576, 30 * LAYER + 49152 * 576
    draft, verify = expected_work(state, {"layers": [12]}, SMOL, 4, 0, 2, layer=12)
    assert draft.read * plain == pytest.approx(4 * (12 * LAYER + 2 * 8 * 576 + 10 * 576)) == draft.products * plain
    assert verify.read == pytest.approx(1)
    assert verify.products * plain == pytest.approx(5 * 18 * LAYER + 12 * LAYER + 5 * head)


def test_a_table_reads_no_weights():
    assert draft_matrices({}, {}, SMOL, 5, 256, 2) == []
    assert expected_work({}, {}, SMOL, 5, 256, 2)[0] == Work(0, 0)


@pytest.mark.parametrize("name", ["eagle", "draft-lm", "diffusion-lm", "block-diffusion", "early-exit"])
def test_the_rows_that_are_counted_are_the_rows_that_are_fed(name):
    """The layers' rows and forwards of a second draft, by what the drafter itself counts."""
    target = tiny_target(layers=6)
    drafter = start(ready(name, target, torch.arange(0, 40, 2)), target, SimpleNamespace(ids=torch.arange(0, 40, 2)))
    layer, stored = 1 if name == "early-exit" else None, checkpoint(name, drafter)
    lm = target.fresh()
    what = method_of(name, f"exit {layer}" if layer else "", stored, lm, 4).what
    model = what.model if name in ("draft-lm", "early-exit") else what.head
    counted = getattr(model, "model", model)
    fed = []
    for tokens in ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6, 7)):
        lm.prefill(tokens[:-1])
        before = counted.forwards, counted.fed
        assert len(what(begin(tokens, 9), Budget(4), NO_DICE)) == 4
        fed.append((counted.forwards - before[0], counted.fed - before[1]))
    parts = draft_matrices(stored.state, stored.meta, target.shape, 4, 7, 2, layer)
    layers = matrix_size(stored.state, "layers.") + matrix_size(stored.state, "", ("qkv", "out", "gate_up", "down"))
    layers = layers or target.shape.hidden * (12 * 4 + 3 * 32)
    main = next(part for part in parts if part.weights == layers)
    if name == "block-diffusion":                  # rows that are committed are read beside the block
        assert fed[1] == (1, 3)
        assert (main.reads, main.rows, parts[0].rows) == (1, 8, 3)
        pairs = [one.shape[1] for name, one in stored.state.items() if name.endswith("qkv")]     # the first: of both
        assert parts[0].weights == stored.state["fc"].numel() + 2 * 2 * 4 * sum(pairs)           # keys and values
    elif name == "eagle":
        assert fed[1] == (4, 5) == (main.reads, main.rows)
    else:
        assert fed[1] == (main.reads, main.rows)
