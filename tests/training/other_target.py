"""A tiny random target that transformers runs, in memory and as a folder, for tests of what is trained on it."""

from pathlib import Path

import torch

from specdec_lib.models.huggingface import HuggingFace
from tests.training.folder import WORDS, save_tokenizer

SMALL = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32,
         "max_position_embeddings": 512, "initializer_range": 0.4, "bos_token_id": None, "eos_token_id": 1}


def neox(vocab: int = 40, **change):
    """A GPT-NeoX of four layers that nobody trained."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    torch.manual_seed(0)
    return GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=vocab, **SMALL | change)).eval()


def other_target(vocab: int = 40, **change) -> HuggingFace:
    return HuggingFace(neox(vocab, **change))


def other_folder(path: Path, model=None) -> Path:
    """The model, by default a GPT-NeoX, as transformers writes it, with the tokenizer of `folder.model_folder`."""
    (neox(len(WORDS)) if model is None else model).save_pretrained(path)
    return save_tokenizer(path)
