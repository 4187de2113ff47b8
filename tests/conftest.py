"""Tiny checkpoints of every family with random weights, saved the way transformers saves them."""

import gc
import importlib
import pkgutil
import random
import signal

import pytest
import torch
import transformers
from hypothesis import settings

import specdec_lib
from specdec_lib.types import ROOT, Draft

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:      # as in a shell's background job; tests of Ctrl-C would wait
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("whatever the load", deadline=None)      # else a test fails where the machine is busy
settings.load_profile("whatever the load")
VOCAB = 97
SIZES = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
         "vocab_size": VOCAB, "num_key_value_heads": 2, "initializer_range": 0.2, "max_position_embeddings": 2048}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 8.0, "original_max_position_embeddings": 64,
        "beta_fast": 4.0}
PHI = {"rope_type": "longrope", "rope_theta": 1000.0, "short_factor": [1.0, 1.3, 2.0], "long_factor": [1.5, 3.0, 9.0],
       "partial_rotary_factor": 0.75, "original_max_position_embeddings": 1024}
FAMILIES = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    "llama3": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=LLAMA3, tie_word_embeddings=True),
    "llama linear": lambda: transformers.LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}, attention_bias=True,
        mlp_bias=True),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=None, head_dim=16),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, use_sliding_window=False),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True),
    "phi3": lambda: transformers.Phi3Config(**SIZES, pad_token_id=0),
    "phi4 mini": lambda: transformers.Phi3Config(**SIZES, pad_token_id=0, rope_parameters=PHI,
                                                 original_max_position_embeddings=1024),
    "granite": lambda: transformers.GraniteConfig(
        **SIZES, embedding_multiplier=5.0, attention_multiplier=0.3, residual_multiplier=0.7, logits_scaling=3.0,
        tie_word_embeddings=True, attention_bias=True),
    "yarn": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=YARN),
    "smollm3": lambda: transformers.SmolLM3Config(**SIZES, pad_token_id=0, no_rope_layers=[1, 0, 1])}


class Checkpoint:
    """A saved model and what transformers says about it."""

    def __init__(self, folder, model):
        self.folder, self.model = folder, model

    def logits(self, tokens, dtype=torch.float32):
        """Logits [len, V] of plain text, without any cache."""
        model = self.model                         # .to(dtype) would round the rotary angles, too
        if dtype != torch.float32:
            model = transformers.AutoModelForCausalLM.from_pretrained(self.folder, dtype=dtype)
        with torch.no_grad():
            return model(torch.tensor([list(tokens)]), use_cache=False).logits[0]

    def states(self, tokens):
        """Residual streams [len, layers + 1, hidden]."""
        with torch.no_grad():
            out = self.model(torch.tensor([list(tokens)]), output_hidden_states=True, use_cache=False).hidden_states
        return torch.cat(out).transpose(0, 1)


@pytest.fixture(scope="session", autouse=True)
def all_modules():
    """Loads the whole package before any test: a module first loaded while a name is patched keeps the patch."""
    for module in pkgutil.walk_packages(specdec_lib.__path__, "specdec_lib."):
        importlib.import_module(module.name)
    gc.collect()
    gc.freeze()                                    # these, and what pytest knows of ten thousand tests, are no garbage


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """checkpoint(family): made once a session."""
    torch.set_num_threads(1)
    made = {}

    def make(family):
        if family not in made:
            torch.manual_seed(list(FAMILIES).index(family))       # the same weights whichever test asks first
            model = transformers.AutoModelForCausalLM.from_config(FAMILIES[family]()).eval()
            for name, weight in model.named_parameters():
                if name.endswith("bias") or "norm" in name:    # 0 and 1 in transformers, which would hide them
                    torch.nn.init.normal_(weight, 0.0 if name.endswith("bias") else 1.0, 0.3)
            folder = tmp_path_factory.mktemp("tiny")
            model.save_pretrained(folder)
            made[family] = Checkpoint(folder, model)
        return made[family]

    return make


def random_text(dice: random.Random, length: int) -> tuple[int, ...]:
    return tuple(dice.randrange(VOCAB) for _ in range(length))


def random_tree(dice: random.Random, nodes: int, chain: bool = False) -> Draft:
    """A tree whose siblings differ."""
    tokens, parents, taken = [], [], set()
    for node in range(nodes):
        parent = node - 1 if chain else dice.randrange(ROOT, node)
        token = next(t for t in iter(lambda: dice.randrange(VOCAB), None) if (parent, t) not in taken)
        taken.add((parent, token))
        tokens.append(token)
        parents.append(parent)
    return Draft(tuple(tokens), tuple(parents))


def on_path(draft: Draft, node: int) -> tuple[int, ...]:
    return tuple(draft.tokens[i] for i in draft.path(node))


def random_rounds(seed: int, rounds: int, start: int = 20, back: float = 0.15, chain: bool = False):
    """(tokens, draft) of rounds that accept a random path and a correction, and now and then go back."""
    dice = random.Random(seed)
    tokens = random_text(dice, start)
    for _ in range(rounds):
        draft = random_tree(dice, dice.randrange(7), chain)
        yield tokens, draft
        tokens += on_path(draft, dice.randrange(ROOT, len(draft))) + random_text(dice, 1)
        if dice.random() < back:
            tokens = tokens[:dice.randrange(3, len(tokens))]


@pytest.fixture
def rounds():
    return random_rounds


@pytest.fixture
def tree():
    return random_tree


@pytest.fixture
def path():
    return on_path


@pytest.fixture
def words():
    """words(n, seed): random text of n tokens."""
    return lambda n, seed=0: random_text(random.Random(seed), n)
