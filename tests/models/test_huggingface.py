"""Other architectures behind the same seam: chains always, trees where the mask is obeyed, else one clear sentence."""

import copy
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import transformers

from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import ROOT, Draft, Refusal

LLAMA_LIKE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
              "vocab_size": 97, "num_key_value_heads": 2, "initializer_range": 0.3}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 97}
ODD = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 97, "initializer_range": 0.3}
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(**SMALL, n_positions=128, initializer_range=0.3),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**SMALL, intermediate_size=48, initializer_range=0.3),
    "gemma": lambda: transformers.GemmaConfig(**LLAMA_LIKE, head_dim=8),
    "gemma3": lambda: transformers.Gemma3TextConfig(**LLAMA_LIKE, head_dim=8, sliding_window=8),
    "gemma4": lambda: transformers.Gemma4TextConfig(**LLAMA_LIKE, head_dim=8, vocab_size_per_layer_input=97),
    "gpt_neo": lambda: transformers.GPTNeoConfig(**SMALL, attention_types=[[["global", "local"], 1]], window_size=8),
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


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "gemma", "gemma3", "gemma4"])
def test_a_tree_scores_each_path_as_if_it_were_alone_where_the_architecture_obeys_a_mask(load, rounds, path, name):
    lm = load(name)
    for tokens, draft in rounds(seed=2, rounds=15):
        assert far_from_alone(lm, path, tokens, draft) < 1e-4


@pytest.mark.parametrize("name", ["bloom", "gpt_neo"])
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


def test_exits_are_refused_as_not_available(load):
    with pytest.raises(Refusal, match="not available"):
        load("gpt2").exit(1)


def far(a, b) -> float:
    assert a.shape == b.shape
    return float((a - b).abs().max())


def test_features_of_a_llama_equal_those_of_our_own_decoder_over_trees_and_after_going_back(checkpoint, rounds):
    folder = checkpoint("llama").folder
    one, other = HuggingFace.load(folder), Transformer.load(folder)
    assert one.takes_trees
    for lm in (one, other):
        lm.tap((0, 2, 3))
    for tokens, draft in rounds(seed=6, rounds=25):
        for lm in (one, other):
            lm.prefill(tokens[:-1])
        assert far(one.features(tokens), other.features(tokens)) < 1e-4
        for lm in (one, other):
            lm(tokens, draft)
        assert far(one.features(tokens), other.features(tokens)) < 1e-4


def fresh_features(lm, tokens):
    new = lm.fresh()
    new.tap(lm.cache.taps)
    new.prefill(tokens)
    return new.features(tokens)


@pytest.mark.parametrize(("name", "chain"), [("gpt_neox", False), ("gpt2", False), ("bloom", True), ("gemma3", False)])
def test_features_after_accepted_paths_and_after_going_back_are_those_of_a_fresh_prefill(load, rounds, name, chain):
    lm = load(name)
    lm.tap((2, 0, 1))
    for tokens, draft in rounds(seed=7, rounds=25, chain=chain):
        lm.prefill(tokens[:-1])
        assert len(lm.features(tokens)) == len(tokens) - 1
        lm(tokens, draft)
        assert far(lm.features(tokens), fresh_features(lm, tokens)) < 1e-4


def test_features_of_an_accepted_path_need_no_forward(load, words):
    lm, text = load("gpt_neox"), words(10)
    lm.tap((1, 2))
    lm(text, Draft((4, 5, 6), (ROOT, ROOT, 1)))
    before, taken = lm.forwards, text + (5, 6, 9)  # 9 has not been fed
    assert far(lm.features(taken), fresh_features(lm, taken[:-1])) < 1e-4
    assert lm.forwards == before


@pytest.mark.parametrize("name", CONFIGS)
def test_the_last_level_is_the_input_of_the_head_and_the_first_one_no_other_level(load, words, name):
    lm, text = load(name), words(9)
    lm.tap((0, 1, lm.layers))
    lm.prefill(text)
    streams = lm.features(text)
    assert float((lm.weights.head(streams[-1:, 2])[0] - alone(lm, text)).abs().max()) < 1e-4
    assert far(streams[:, 0], streams[:, 1]) > .01


def test_features_of_a_long_prompt_are_kept_where_their_rows_grow(load, words):
    lm, text = load("gemma"), words(600)
    lm.tap((1,))
    lm.prefill(text)
    with torch.no_grad():
        want = lm.model(torch.tensor([text]), output_hidden_states=True, use_cache=False).hidden_states[1][0]
    assert far(lm.features(text)[:, 0], want) < 1e-4


def test_features_without_taps_or_before_feeding_and_taps_that_are_no_levels_are_errors(load):
    lm = load("gpt_neox")
    with pytest.raises(ValueError, match="tap"):
        lm.features((1, 2))
    with pytest.raises(ValueError, match="between 0 and 2"):
        lm.tap((3,))
    lm.tap((2,))
    lm.prefill((1, 2, 3))
    with pytest.raises(ValueError, match="only 2 of these 4"):
        lm.features((1, 2, 9, 9))


def test_another_choice_of_taps_drops_the_rows_and_fresh_keeps_neither_rows_nor_taps(load, words):
    lm, text = load("gpt_neox"), words(6)
    lm.tap((2,))
    lm.prefill(text)
    lm.tap((2,))
    assert len(lm.features(text)) == 6
    lm.tap((1, 2))
    with pytest.raises(ValueError, match="only 0 of these 6"):
        lm.features(text)
    new = lm.fresh()
    assert (len(new.cache.rows), new.cache.taps, new.cache.features) == (0, (), None)
    assert new.weights is lm.weights


def test_logits_are_the_same_with_and_without_taps(load, rounds):
    tapped, plain = load("gpt_neox"), load("gpt_neox")
    tapped.tap((0, 2))
    for tokens, draft in rounds(seed=8, rounds=10):
        assert torch.equal(tapped(tokens, draft).logits, plain(tokens, draft).logits)
    assert (tapped.forwards, tapped.fed) == (plain.forwards, plain.fed)


def test_drafters_share_the_models_own_embedding_and_output_matrix(load):
    lm = load("gpt_neox")
    weights, shape = lm.weights, lm.shape
    assert weights.embedding.data_ptr() == lm.model.get_input_embeddings().weight.data_ptr()
    assert weights.head.dense().data_ptr() == lm.model.get_output_embeddings().weight.data_ptr()
    assert (shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.vocab) == (32, 4, 4, 8, 97)
    assert (shape.tied, load("gpt2").shape.tied, load("gemma").shape.kv_heads) == (False, True, 2)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_that_are_the_product_with_the_output_matrix_are_found_to_be(load, name, dtype):
    assert HuggingFace(copy.deepcopy(load(name).model).to(dtype)).head_gives_logits()


CHANGED = {
    "scaled": lambda: transformers.CohereConfig(**LLAMA_LIKE, logit_scale=0.5),
    "divided": lambda: transformers.GraniteConfig(**LLAMA_LIKE, logits_scaling=4.0),
    "capped": lambda: transformers.Gemma2Config(**LLAMA_LIKE, head_dim=8, final_logit_softcapping=30.0)}


@pytest.mark.parametrize("how", CHANGED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_that_are_changed_after_the_output_matrix_are_told_apart(how, dtype):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CHANGED[how]()).eval()
    assert not HuggingFace(model.to(dtype)).head_gives_logits()


UNSHARED = {
    "has a bias": lambda: transformers.PhiConfig(**SMALL, intermediate_size=48, bos_token_id=0, eos_token_id=0),
    "of its hidden size": lambda: transformers.OPTConfig(**SMALL, ffn_dim=48, word_embed_proj_dim=16),
    "of its own size": lambda: transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=97)}


@pytest.mark.parametrize("reason", UNSHARED)
def test_a_model_that_no_drafter_can_read_refuses_taps_in_one_sentence_and_has_no_weights(reason):
    lm = HuggingFace(transformers.AutoModelForCausalLM.from_config(UNSHARED[reason]()).eval())
    with pytest.raises(Refusal, match=f"not available to a drafter: .*{reason}"):
        lm.tap((1,))
    with pytest.raises(Refusal, match="not available to a drafter"):
        lm.head_gives_logits()
    assert not hasattr(lm, "weights")


def test_a_model_without_an_output_matrix_refuses_taps(load):
    model = SimpleNamespace(config=load("gpt_neox").model.config, forward=lambda input_ids: None,
                            get_input_embeddings=lambda: None, get_output_embeddings=lambda: None)
    with pytest.raises(Refusal, match="no plain embedding and output matrix"):
        HuggingFace(model).tap((1,))


def test_a_model_that_returns_no_hidden_states_is_refused(load, monkeypatch):
    lm = load("gpt_neox")
    lm.tap((1,))
    whole = lm.model.forward
    monkeypatch.setattr(lm.model, "forward", lambda output_hidden_states, **given: whole(**given))
    with pytest.raises(Refusal, match="gives no hidden state after each of its 2 layers"):
        lm.prefill((1, 2, 3))


def test_the_context_and_vocabulary_are_read_from_the_config(load):
    assert load("gpt2").context == 128
    assert load("gpt2").vocab == 97
    assert load("bloom").context is None


def test_a_model_whose_cache_cannot_be_rolled_back_is_refused(tmp_path):
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=97)
    transformers.MambaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(Refusal, match="does not keep a row of keys and values per token in every layer"):
        HuggingFace.load(tmp_path)


def test_what_transformers_cannot_load_is_refused_in_one_sentence(tmp_path, load):
    load("gpt2").model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(Refusal, match=r"cannot load .* \(the reason\)") as refusal:
        HuggingFace.load(tmp_path, why="the reason")
    assert "\n" not in str(refusal.value)


def test_a_model_that_lacks_a_package_is_not_to_be_fetched_again(tmp_path, load, monkeypatch):
    load("gpt2").model.save_pretrained(tmp_path)
    missing = ImportError("Loading it requires optimum (`pip install optimum`)")
    monkeypatch.setattr("specdec_lib.models.huggingface.pretrained", Mock(side_effect=missing))
    with pytest.raises(Refusal, match=r"requires optimum \(`pip install optimum`\); take another model$"):
        HuggingFace.load(tmp_path)
