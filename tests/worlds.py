"""Tiny worlds in which every law is known exactly."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.dice import Dice
from specdec_lib.loop import decode
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.ngram import Ngram
from specdec_lib.models.table import Table
from specdec_lib.sampling import Sampling
from specdec_lib.scores import Categorical, Scores
from specdec_lib.training.data.ngram_counts import count_ngrams
from specdec_lib.types import Method

PROMPT = (0, 1, 2, 0, 1)
WARM = Sampling(temperature=1.0)
TARGET = Table({(): (.5, .3, .2), (0,): (.2, .5, .3), (1,): (.1, .3, .6), (0, 1): (.25, .15, .6), (2,): (.7, .1, .2),
                (1, 2): (.55, .25, .2)})
DRAFT = Table({(): (.3, .3, .4), (0,): (.5, .2, .3), (1,): (.3, .3, .4), (2,): (.2, .6, .2)})


def kit(sampling=WARM, nodes: int = 3, **more) -> Kit:
    """A kit of the table world."""
    facts = TokenizerFacts(vocab=3)
    return Kit(TARGET, facts, sampling, nodes=nodes, draft=DRAFT, parts=catalog.make_part, **more)


def run(method: Method, dice, sampling=WARM, tokens: int = 3, target=TARGET, prompt=PROMPT) -> tuple[int, ...]:
    """The output of one decode."""
    for session in decode(prompt, target, *method, max_new_tokens=tokens, sampling=sampling, dice=dice):
        pass
    return session.output


class Noted(Dice):
    """Dice that remember which coins were thrown."""

    thrown: list = []

    def fork(self, *key):
        return Noted(self.seed, self.key + key)

    def choose(self, dist: Categorical) -> int:
        Noted.thrown.append(self.key)
        return super().choose(dist)


def true_law(target=TARGET, prompt=PROMPT, tokens: int = 3) -> dict[tuple[int, ...], float]:
    """The target's own law over outputs, multiplied out."""
    dist = {}
    for output in itertools.product(range(target.vocab), repeat=tokens):
        prob = 1.0
        for i, token in enumerate(output):
            prob *= float(target.logits(prompt + output[:i]).exp()[token])
        dist[output] = prob
    return dist


class Scripted:
    """A target that always says the same text: greedy decoding of it emits `script` after the prompt."""

    context = None

    def __init__(self, prompt: tuple[int, ...], script: tuple[int, ...], vocab: int = 32):
        self.text, self.vocab, self.forwards = tuple(prompt) + tuple(script), vocab, 0

    def fresh(self):
        return self

    def prefill(self, tokens):
        self.prefilled = len(tokens)

    def __call__(self, tokens, draft):
        self.forwards += 1
        lengths = [len(tokens)] + [len(tokens) + depth for depth in draft.depths]
        logits = torch.zeros(len(lengths), self.vocab)
        for row, length in enumerate(lengths):
            if length < len(self.text):
                logits[row, self.text[length]] = 5.0
        return Scores(logits)

    def features(self, tokens):
        return torch.tensor(tokens, dtype=torch.float32)[:, None, None]     # [len, taps, hidden]: the token itself


# --- parts that need a network: a random transformer of two layers and three tokens, in float64 ----------------------

SHAPE = LlamaConfig(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, mlp=16, vocab=3, context=128)


@dataclass(frozen=True)
class Trained:
    """A checkpoint as the kit hands it out, which nobody trained."""

    name: str
    state: dict
    meta: dict = field(default_factory=dict)


def random_state(seed: int, ids: tuple[int, ...], **sizes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """Random tensors of these sizes, norms around one; names may hold `__` for a dot."""
    dice = torch.Generator().manual_seed(seed)
    made = {name.replace("__", "."): torch.randn(size, generator=dice) / (1 if len(size) == 1 else size[-1] ** .5)
            for name, size in sizes.items()}
    return {name: tensor.abs() + .5 if tensor.ndim == 1 else tensor for name, tensor in made.items()} | {
        "ids": torch.tensor(ids)}


def random_eagle(shape: LlamaConfig, taps: tuple[int, ...], ids: tuple[int, ...], seed: int = 3) -> Trained:
    """An EAGLE head with random weights."""
    h, wide = shape.hidden, shape.heads * shape.head_dim
    state = random_state(seed, ids, fc=(h, len(taps) * h), qkv=(wide + 2 * shape.kv_heads * shape.head_dim, 2 * h),
                         out=(h, wide), gate_up=(2 * shape.mlp, h), down=(h, shape.mlp), norm=(h,))
    return Trained("eagle", state, {"taps": list(taps)})


def random_exits(shape: LlamaConfig, layers: tuple[int, ...], ids: tuple[int, ...], seed: int = 4) -> Trained:
    """Early exits with random weights."""
    h, sizes = shape.hidden, {}
    for layer in layers:
        sizes |= {f"exit__{layer}__down": (5, h), f"exit__{layer}__up": (h, 5), f"exit__{layer}__norm": (h,)}
    return Trained("early-exit", random_state(seed, ids, **sizes), {"layers": list(layers)})


def random_diffusion(shape: LlamaConfig, ids: tuple[int, ...], layers: int = 2, seed: int = 6) -> Trained:
    """A diffusion language model with random weights, its logits shifted."""
    h, wide = shape.hidden, shape.heads * shape.head_dim
    sizes = {"norm": (h,), "mask": (h,)}
    for i in range(layers):
        sizes |= {f"layers__{i}__qkv": (wide + 2 * shape.kv_heads * shape.head_dim, h), f"layers__{i}__out": (h, wide),
                  f"layers__{i}__gate_up": (2 * shape.mlp, h), f"layers__{i}__down": (h, shape.mlp)}
    return Trained("diffusion-lm", random_state(seed, ids, **sizes), {"blocks": [4], "shifted": True})


def random_block_diffusion(shape: LlamaConfig, taps: tuple[int, ...], ids: tuple[int, ...], layers: int = 2,
                           block: int = 4,
                           candidates: int = 4, seed: int = 5) -> Trained:
    """A block drafter with random weights, one of its `layers` that of an EAGLE head."""
    h, wide = shape.hidden, shape.heads * shape.head_dim
    qkv = wide + 2 * shape.kv_heads * shape.head_dim
    rest = {"out": (h, wide), "gate_up": (2 * shape.mlp, h), "down": (h, shape.mlp)}
    sizes = {"fc": (h, len(taps) * h), "norm": (h,), "mask": (block - 1, h), "correction": (h, h),
             "confidence": (2 * h,), "qkv": (qkv, 2 * h), **rest}
    for i in range(layers - 1):
        sizes |= {f"gates__{i}__attention": (h,), f"gates__{i}__mlp": (h,)}
        sizes |= {f"layers__{i}__{name}": size for name, size in {"qkv": (qkv, h), **rest}.items()}
    return Trained("block-diffusion", random_state(seed, ids, **sizes),
                   {"taps": list(taps), "block": block, "candidates": candidates})


def random_lengths(shape: LlamaConfig, drafters: tuple[str, ...], wide: int = 4, longest: int = 3,
                   seed: int = 7) -> Trained:
    """Length predictors with random weights, whose numbers lie around one and a half."""
    h, sizes = shape.hidden, {}
    for name in drafters:
        sizes |= {f"{name}__{layer}__weight": size for layer, size in
                  (("first", (wide, 2 * h)), ("second", (wide, wide)), ("third", (wide, wide)), ("out", (1, wide)))}
        sizes |= {f"{name}__{layer}__bias": (wide if layer != "out" else 1,)
                  for layer in ("first", "second", "third", "out")}
    state = random_state(seed, (0,), **sizes)
    return Trained("length-predictor", {name: tensor for name, tensor in state.items() if name != "ids"},
                   {"longest": longest})


def classes_by_last_token(embedding: torch.Tensor) -> Trained:
    """An H-RAD of three tokens whose class is the last one: rows of one norm are most alike to themselves.

    `embedding` [3, hidden]; it reads the states of two layers and gives them no weight.
    """
    hidden = embedding.shape[1]
    rows = embedding.float() / embedding.float().square().mean(1, keepdim=True).sqrt()
    first = torch.cat((torch.zeros(3, 2 * hidden), rows), 1)
    state = {"first.weight": first, "first.bias": torch.zeros(3), "second.weight": torch.eye(3),
             "second.bias": torch.zeros(3), "out.weight": torch.eye(3), "out.bias": torch.zeros(3)}
    return Trained("h-rad", state, {"levels": [1, 2], "longest": 1})


def network_kit(sampling=WARM) -> Kit:
    """A kit of the network world: random checkpoints whose heads know two of the three tokens."""
    target = Transformer.random(SHAPE, seed=1, dtype=torch.float64)
    trigram = Ngram(count_ngrams([(0, 2, 1, 0, 2, 2, 0, 1), (2, 0, 0, 2, 1, 1, 2)], 3))
    heads = {"eagle": random_eagle(SHAPE, (0, 1, 2), (0, 2)), "early-exit": random_exits(SHAPE, (1,), (0, 2)),
             "block-diffusion": random_block_diffusion(SHAPE, (0, 1, 2), (0, 2)),
             "diffusion-lm": random_diffusion(SHAPE, (0, 2)), "ngram": trigram,
             "length-predictor": random_lengths(SHAPE, ("eagle", "draft-model", "early-exit")),
             "h-rad": classes_by_last_token(target.weights.embedding)}
    return Kit(target, TokenizerFacts(vocab=3), sampling, nodes=3, draft=target.first_layers(1), checkpoints=heads,
               parts=catalog.make_part)


def kit_for(part: str) -> Kit:
    """A kit that this part can be made from: of the table world, where that has all it needs."""
    card = next(room[part] for room in catalog.parts().values() if part in room)
    return network_kit() if catalog.missing(card, kit()) else kit()
