"""A random target of a few layers and examples of a few tokens, for tests of what is trained on them."""

import random
from dataclasses import replace

import torch

from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.training.data.examples import Example


def tiny_target(vocab: int = 40, layers: int = 4, hidden: int = 16, seed: int = 0, **shape) -> Transformer:
    """A float32 decoder nobody trained; its last norm is random, so that leaving it out shows."""
    tiny = LlamaConfig(**{"layers": layers, "hidden": hidden, "heads": 4, "kv_heads": 2, "head_dim": 4,
                          "mlp": 2 * hidden,
                          "vocab": vocab, "context": 256} | shape)
    weights = random_weights(tiny, seed)
    norm = 1 + 0.3 * torch.randn(hidden, generator=torch.Generator().manual_seed(seed))
    return Transformer(replace(weights, norm=norm))


def tiny_examples(count: int = 6, vocab: int = 40, seed: int = 0, prompt: tuple[int, int] = (2, 5),
                  output: tuple[int, int] = (4, 9), held_out: int = 0) -> list[Example]:
    """Random tokens of random lengths between both ends of `prompt` and `output`; the last `held_out` are held out."""
    dice = random.Random(seed)

    def words(ends: tuple[int, int]) -> tuple[int, ...]:
        return tuple(dice.randrange(vocab) for _ in range(dice.randint(*ends)))

    return [Example(words(prompt), words(output), "tiny", 0.0, i >= count - held_out) for i in range(count)]
