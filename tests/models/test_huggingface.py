"""Other architectures behind the same seam: chains always, trees where the mask is obeyed, else one clear sentence."""

import pytest
import torch
import transformers

from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import ROOT, Draft, Refusal

LLAMA_LIKE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
              "vocab_size": 97, "num_key_value_heads": 2, "initializer_range": 0.3}
ODD = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 97, "initializer_range": 0.3}
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=97, n_positions=128,
                                            initializer_range=0.3, bos_token_id=0, eos_token_id=0),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**{k: v for k, v in LLAMA_LIKE.items() if "value" not in k},
                                                   bos_token_id=0, eos_token_id=0),
    "gemma": lambda: transformers.GemmaConfig(**LLAMA_LIKE, head_dim=8),
    "gemma3": lambda: transformers.Gemma3TextConfig(**LLAMA_LIKE, head_dim=8, sliding_window=8),
    "bloom": lambda: transformers.BloomConfig(**ODD)}


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """load(name): a tiny random model, saved once and read back through the loader."""
    torch.set_num_threads(1)
    made = {}

    def one(name):
        if name not in made:
            torch.manual_seed(0)
            folder = tmp_path_factory.mktemp(name)
            transformers.AutoModelForCausalLM.from_config(CONFIGS[name]()).save_pretrained(folder)
            made[name] = HuggingFace.load(folder)
        return made[name].fresh()

    return one


def alone(lm, tokens):
    with torch.no_grad():
        return lm.model(torch.tensor([tokens]), use_cache=False).logits[0, -1]


def far_from_alone(lm, path, tokens, draft):
    want = torch.stack([alone(lm, tokens + path(draft, node)) for node in range(ROOT, len(draft))])
    return float((lm(tokens, draft).logits - want).abs().max())


@pytest.mark.parametrize("name", CONFIGS)
def test_a_chain_scores_each_prefix_as_if_it_were_alone_through_accepted_and_rejected_rounds(load, rounds, path, name):
    lm = load(name)
    for tokens, draft in rounds(seed=1, rounds=15, chain=True):
        assert far_from_alone(lm, path, tokens, draft) < 1e-4


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "gemma"])
def test_a_tree_scores_each_path_as_if_it_were_alone_where_the_architecture_obeys_a_mask(load, rounds, path, name):
    lm = load(name)
    for tokens, draft in rounds(seed=2, rounds=15):
        assert far_from_alone(lm, path, tokens, draft) < 1e-4


@pytest.mark.parametrize("name", ["bloom", "gemma3"])
def test_a_tree_is_refused_in_one_sentence_where_it_does_not(load, name):
    lm = load(name)
    with pytest.raises(Refusal, match="this model takes chains only"):
        lm((1, 2), Draft((3, 4), (ROOT, ROOT)))
    assert lm((1, 2), deterministic_chain((3, 4))).logits.shape == (3, 97)


def test_only_what_is_new_is_fed(load, words):
    lm, text = load("gpt2"), words(20)
    lm.prefill(text[:-1])
    assert lm.fed == 19
    first = lm(text, deterministic_chain((1, 2)))
    lm(text, deterministic_chain((1, 2, 3)))
    assert lm.fed == 19 + 3 + 1
    copy = first.logits.clone()
    lm(text + (1, 2, 50), Draft())                 # two accepted, one corrected
    assert lm.fed == 23 + 1
    assert torch.equal(first.logits, copy)


def test_a_long_prompt_is_read_in_chunks_with_the_same_result(load, words):
    lm, text = load("gemma"), words(600)
    lm.prefill(text[:-1])
    assert float((lm(text, Draft()).logits[0] - alone(lm, text)).abs().max()) < 1e-4
    assert lm.forwards == 3


def test_fresh_shares_weights_and_no_rows(load, words):
    lm = load("gpt2")
    lm.prefill(words(5))
    other = lm.fresh()
    other.prefill(words(5))
    assert other.model is lm.model
    assert other.fed == 5


def test_features_and_exits_are_refused_as_not_available(load):
    lm = load("gpt2")
    for ask in (lambda: lm.features((1,)), lambda: lm.exit(1), lambda: lm.tap((1,))):
        with pytest.raises(Refusal, match="not available"):
            ask()


def test_the_context_and_vocabulary_are_read_from_the_config(load):
    assert load("gpt2").context == 128
    assert load("gpt2").vocab == 97
    assert load("bloom").context is None


def test_a_model_whose_cache_cannot_be_rolled_back_is_refused(tmp_path):
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=97)
    transformers.MambaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(Refusal, match="cannot be rolled back"):
        HuggingFace.load(tmp_path)


def test_what_transformers_cannot_load_is_refused_in_one_sentence(tmp_path, load):
    load("gpt2").model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(Refusal, match=r"cannot load .* \(the reason\)") as refusal:
        HuggingFace.load(tmp_path, why="the reason")
    assert "\n" not in str(refusal.value)
