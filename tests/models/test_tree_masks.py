"""Trees where a layer sees a window of the text, or a chunk of it: every path scores as if it were alone."""

import pytest
import torch
import transformers

from specdec_lib.models import tree_masks
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.models.tree_masks import near
from specdec_lib.types import ROOT

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "vocab_size": 97, "num_key_value_heads": 2, "initializer_range": 0.3, "pad_token_id": 0, "bos_token_id": 0,
         "eos_token_id": 0}
EXPERTS = {"num_local_experts": 4, "head_dim": 8}
KINDS = ["sliding_attention", "full_attention"]
CONFIGS = {                                        # each has one mask for all layers, or one for each kind of layer
    "gemma2": lambda: transformers.Gemma2Config(**SIZES, head_dim=8, sliding_window=8),
    "gpt_oss": lambda: transformers.GptOssConfig(**SIZES, **EXPERTS, sliding_window=5, num_experts_per_tok=2),
    "llama4": lambda: transformers.Llama4TextConfig(
        **SIZES, **EXPERTS, intermediate_size_mlp=48, num_experts_per_tok=1, attention_chunk_size=5,
        layer_types=["chunked_attention", "full_attention"]),
    "mistral": lambda: transformers.MistralConfig(**SIZES, head_dim=8, sliding_window=6),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, layer_types=KINDS)}
WINDOWS = {"gemma2": 8, "gpt_oss": 5, "llama4": 5, "mistral": 6, "qwen2": 4}        # tokens


@pytest.fixture(scope="module")
def load():
    """load(name): a tiny random model, tried like one that is read from a folder."""
    made = {}

    def one(name):
        if name not in made:
            torch.manual_seed(0)
            made[name] = HuggingFace(transformers.AutoModelForCausalLM.from_config(CONFIGS[name]()).eval())
            made[name].takes_trees = made[name].obeys_tree_masks()
        return made[name].fresh()

    return one


def alone(lm, tokens):
    with torch.no_grad():
        return lm.model(torch.tensor([tokens]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("name", CONFIGS)
def test_each_path_scores_as_if_it_were_alone_when_the_text_outgrows_the_window(load, rounds, path, name):
    lm, longest = load(name), 0
    for tokens, draft in rounds(seed=2, rounds=25):
        longest = max(longest, len(tokens))
        got = lm(tokens, draft).logits
        want = torch.stack([alone(lm, tokens + path(draft, node)) for node in range(ROOT, len(draft))])
        assert float((got - want).abs().max()) < 1e-4
    assert longest > 2 * WINDOWS[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_trial_leaves_the_window_as_the_config_has_it(load, name):
    config = load(name).config
    assert getattr(config, "attention_chunk_size" if name == "llama4" else "sliding_window") == WINDOWS[name]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("more", [-1, 1])
def test_trees_are_refused_where_the_model_has_another_window_than_ours(load, name, more, monkeypatch):
    assert load(name).obeys_tree_masks()
    monkeypatch.setattr(tree_masks, "near", lambda at, start, kind, size: near(at, start, kind, size + more))
    assert not load(name).obeys_tree_masks()
