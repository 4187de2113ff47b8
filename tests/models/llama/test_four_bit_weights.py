"""A model in 4 bits is its dequantised twin, keeps a row's bits, and says whose codes it computes with."""

import json
import random

import pytest
import torch
from safetensors.torch import save_file

from specdec_lib import catalog
from specdec_lib.bench.environment import dtype_of, other_dtype, weights_dtype
from specdec_lib.bench.prompts import balanced, default_path, load_prompts
from specdec_lib.cards import Kit
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.hub.load import default_dtype, load, load_lm
from specdec_lib.hub.locate import model_folder
from specdec_lib.loop import decode
from specdec_lib.models.llama.batched import BatchedLlama
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.families import stored_weights
from specdec_lib.models.llama.four_bit_weights import OWN, fuse_four_bit, weights_of
from specdec_lib.models.llama.group_codes import codes_of
from specdec_lib.models.llama.weights import fuse, reader, size_of
from specdec_lib.types import ROOT, Draft, Refusal

SHAPE = LlamaConfig(layers=3, hidden=64, heads=4, kv_heads=2, head_dim=32, mlp=96, vocab=80, context=512)


def dequantised(get, tied=False):
    """The tensors of a checkpoint whose matrices went to 4 bits and back, and whose head to 8."""
    def twin(name):
        tensor = get(name)
        if tensor.ndim < 2 or "embed" in name and not tied:
            return tensor
        return codes_of(tensor, 8 if "embed" in name or "head" in name else 4).dense()

    return twin


def random_tensors(name, shape=SHAPE):
    """A tensor of a random checkpoint by its name, the same whenever it is asked for."""
    size = size_of(shape, name)
    made = torch.randn(size, generator=torch.Generator().manual_seed(sum(map(ord, name)))) / 8
    return 1 + made if len(size) == 1 else made


@pytest.fixture(scope="module")
def rounded():
    return Transformer(fuse_four_bit(SHAPE, random_tensors))


@pytest.mark.parametrize("family", ["llama", "llama3", "llama linear", "qwen2", "qwen3", "phi3", "granite", "smollm3"])
def test_a_rounded_checkpoint_decodes_as_its_dequantised_twin_does(family, checkpoint):
    """Biases, norms of heads, tied heads, and sizes that fill no group."""
    folder = checkpoint(family).folder
    lm = load_lm(folder, "int4", "cpu")
    shape, get = stored_weights(folder)
    twin = Transformer(fuse(shape, dequantised(get, shape.tied), torch.float32, "cpu"))
    dice = random.Random(3)
    words = tuple(dice.randrange(97) for _ in range(40))
    one, other = lm(words, Draft((5, 6), (ROOT, ROOT))).logits, twin(words, Draft((5, 6), (ROOT, ROOT))).logits
    assert float((one - other).norm() / other.norm()) < 0.08
    assert lm.weights.four_bit.startswith("rounded, 13 of 13 matrices, to 4 bits and the head to 8: another model")


def test_the_codes_of_a_dequantised_checkpoint_are_found_and_give_the_same_bits(rounded, tmp_path):
    names = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    names += [f"model.layers.{i}.{name}.weight" for i in range(SHAPE.layers) for name in (
        *(f"self_attn.{part}_proj" for part in "qkvo"), *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
        "input_layernorm", "post_attention_layernorm")]
    get = dequantised(random_tensors)
    save_file({name: get(name).contiguous() for name in names}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 80,
        "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96, "max_position_embeddings": 512,
        "rms_norm_eps": SHAPE.eps, "tie_word_embeddings": False, "rope_theta": SHAPE.rope.theta}))
    lm = load_lm(tmp_path, "int4", "cpu")
    assert lm.weights.four_bit == OWN
    words = tuple(range(3, 60))
    assert torch.equal(lm(words, Draft()).logits, rounded.fresh()(words, Draft()).logits)
    plain = load_lm(tmp_path, torch.bfloat16, "cpu").weights
    for one, other in zip(lm.weights.layers, plain.layers, strict=True):
        for name in ("qkv", "out", "gate_up", "down"):         # norms and attention's scale included
            assert torch.equal(getattr(one, name).dense(), getattr(other, name).dense())
    assert torch.equal(lm.weights.head.dense(), plain.head.dense())


def tree(nodes: int) -> Draft:
    """A tree with a fork at every third node."""
    parents = tuple(node - 1 if node % 3 else max(ROOT, node - 4) for node in range(nodes))
    return Draft(tuple(node * 7 % 80 for node in range(nodes)), parents)


@pytest.mark.parametrize("context", [1, 33])
def test_every_node_of_chains_and_trees_of_1_to_40_rows_has_the_bits_of_plain_decoding(rounded, context):
    words = tuple(i * 11 % 80 for i in range(context))
    plain = rounded.fresh()
    for draft in (tree(39), Draft(tuple(range(39)), tuple(range(ROOT, 38)))):
        expected = [plain(words, Draft()).logits[0]]
        for node in range(39):
            expected.append(plain(words + tuple(draft.tokens[i] for i in draft.path(node)), Draft()).logits[0])
        for width in range(1, 41):
            nodes = width - 1
            part = Draft(draft.tokens[:nodes], draft.parents[:nodes])
            found = rounded.fresh()(words, part).logits
            assert torch.equal(found, torch.stack(expected[:width])) or not rounded.batch_invariant


def test_a_long_prompt_in_one_piece_gives_the_bits_of_single_tokens(rounded):
    words = tuple(i * 13 % 80 for i in range(150))
    one, other = rounded.fresh(), rounded.fresh()
    for stop in range(1, 151):
        one.prefill(words[:stop])
    assert torch.equal(one(words, Draft()).logits, other(words, Draft()).logits) or not rounded.batch_invariant


def test_exits_taps_restricted_heads_and_batches_work_on_codes(rounded):
    words, ids = tuple(range(20)), torch.tensor([70, 2, 33])
    logits = rounded.fresh()(words, Draft()).logits
    assert torch.equal(rounded.restricted(ids)(words, Draft()).logits, logits[:, ids])
    assert torch.equal(rounded.fresh().exit(2)(words, Draft()).logits,
                       rounded.first_layers(2)(words, Draft()).logits)
    tapped = rounded.fresh()
    tapped.tap((0, 3))
    tapped.prefill(words)
    head = rounded.weights.head(tapped.features(words)[-1:, 1].contiguous()).float()
    assert torch.equal(head, logits)
    batch = BatchedLlama(rounded.weights)
    batch.prefill([words[:-1], words[:4]])
    found = batch.step(torch.tensor([words[-1], words[4]])).float()
    assert float((found[:1] - logits).norm() / logits.norm()) < 0.03


def test_four_bits_are_for_the_cpu_and_for_decoding_with_our_own_decoder(tmp_path):
    with pytest.raises(Refusal, match="runs on the CPU alone, got --device cuda: take --device cpu, or --dtype bf"):
        dtype_of("int4", "cuda", four_bit=True)
    with pytest.raises(Refusal, match="runs on the CPU alone, got --device cuda:1"):
        weights_of(SHAPE, random_tensors, "int4", "cuda:1")
    with pytest.raises(Refusal, match="and not for training"):
        dtype_of("int4", "cpu")
    assert dtype_of("int4", "cpu", four_bit=True) == weights_dtype("int4") == "int4"
    assert (other_dtype("int4"), other_dtype("float64")) == (default_dtype("cpu"), torch.float64)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    save_file({"one": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(Refusal, match="our own decoder runs, and architecture 'gpt2' is not of the Llama family"):
        load_lm(tmp_path, "int4", "cpu")


@pytest.fixture(scope="module")
def default():
    return load("smollm2-135m", "int4", "cpu")


def test_the_default_target_computes_with_the_codes_that_its_gguf_holds(default):
    weights, get = default[0].weights, reader(model_folder("smollm2-135m"))
    assert weights.four_bit == OWN
    assert [getattr(weights.layers[0], name).bits for name in ("qkv", "out", "gate_up", "down")] == [4] * 4
    assert weights.head.bits == 8
    assert torch.equal(weights.layers[29].down.dense(torch.float32), get("model.layers.29.mlp.down_proj.weight"))
    query = get("model.layers.7.self_attn.q_proj.weight") / 8 * get("model.layers.7.input_layernorm.weight")
    assert torch.equal(weights.layers[7].qkv.dense(torch.float32)[:576], query)
    assert torch.equal(weights.head.rows(torch.arange(500)).dense(torch.float32),
                       get("model.embed_tokens.weight")[:500])


def test_lossless_methods_emit_the_ids_of_plain_decoding_in_4_bits(default):
    target, text = default
    kit = Kit(target, text.facts, nodes=8, checkpoints=CheckpointFolder(SHIPPED, target, text), parts=catalog.make_part)
    for prompt in balanced(load_prompts(default_path()), 2):
        found = {}
        for name in ("ar", "sam", "token-recycling", "eagle2"):
            own = Kit(target.fresh(), kit.facts, nodes=8, checkpoints=kit.checkpoints, parts=kit.parts)
            *_, session = decode(text.encode_chat([prompt.turns[0]]), own.target, *catalog.build(name, own),
                                 max_new_tokens=24, end=text.facts.end)
            found[name] = session.output
        plain = found.pop("ar")
        assert len(plain) > 4
        assert all(output == plain for output in found.values()) or not target.batch_invariant
