"""What the plug into transformers does not support: refused by name, in one sentence."""

from copy import deepcopy

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.generation import TopKLogitsWarper, TopPLogitsWarper

from specdec_lib.integrations.generation_request import OFF
from specdec_lib.integrations.opened_model import open_model
from specdec_lib.integrations.transformers import Speculative
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.types import Refusal
from tests.integrations.tiny import (  # noqa: F401
    PROMPT,
    ids,
    tiny_fixture,
)

SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": None}
STATE = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 97}
REFUSED = {
    "beam_search": {"num_beams": 2},
    "batch of 2": {"do_sample": True, "num_return_sequences": 2},
    "assisted_generation": {"prompt_lookup_num_tokens": 3},
    "RepetitionPenaltyLogitsProcessor": {"repetition_penalty": 1.2},
    "NoRepeatNGramLogitsProcessor": {"no_repeat_ngram_size": 3},
    "MinPLogitsWarper": {"do_sample": True, "min_p": 0.1},
    "TypicalLogitsWarper": {"do_sample": True, "typical_p": 0.5},
    "TopKLogitsWarper": {"do_sample": True, "top_k": 3, "logits_processor": [TopKLogitsWarper(3), TopKLogitsWarper(2)]},
    "filter_value": {"logits_processor": [TopPLogitsWarper(0.5, filter_value=-5.0)]},
    "min_tokens_to_keep": {"logits_processor": [TopPLogitsWarper(0.5, min_tokens_to_keep=2)]},
    "output_hidden_states is .*, whose": {"output_hidden_states": True, "return_dict_in_generate": True},
    "output_attentions is .*, whose": {"output_attentions": True, "return_dict_in_generate": True},
    "past_key_values": {"past_key_values": transformers.DynamicCache()},
    "cache_implementation": {"cache_implementation": "static"},
    "attention_mask": {"attention_mask": torch.tensor([[0] + [1] * (len(PROMPT) - 1)])},
    "position_ids": {"position_ids": torch.arange(1, 1 + len(PROMPT))[None]},
    "inputs_embeds": {"inputs_embeds": torch.zeros(1, 3, 32)},
    "token_type_ids": {"token_type_ids": torch.zeros(1, len(PROMPT), dtype=torch.long)}}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_by_name_in_one_sentence(tiny, name):
    given = {**({} if name == "inputs_embeds" else {"inputs": ids()}), "max_new_tokens": 4, **REFUSED[name]}
    with pytest.raises(Refusal, match=name) as refusal:
        tiny("gpt2").generate(custom_generate=Speculative("sam"), **given)
    assert "\n" not in str(refusal.value)
    assert ". " not in str(refusal.value)


def test_an_option_of_the_models_generation_config_is_refused_with_what_switches_it_off(tiny):
    model = deepcopy(tiny("gpt2"))
    model.generation_config.repetition_penalty = 1.05
    given = {"inputs": ids(), "max_new_tokens": 4, "do_sample": False, "custom_generate": Speculative("sam")}
    with pytest.raises(Refusal, match=r"from the model's generation_config, pass repetition_penalty=1.0\)"):
        model.generate(**given)
    assert torch.equal(model.generate(**given, repetition_penalty=1.0), tiny("gpt2").generate(**given))


def test_a_cache_that_the_models_generation_config_asks_for_is_refused_with_what_switches_it_off(tiny):
    model = deepcopy(tiny("gpt2"))
    model.generation_config.cache_implementation = "static"
    given = {"inputs": ids(), "max_new_tokens": 4, "do_sample": False, "custom_generate": Speculative("sam")}
    with pytest.raises(Refusal, match=r"from the model's generation_config, pass cache_implementation=None\)"):
        model.generate(**given)
    assert torch.equal(model.generate(**given, cache_implementation=None), tiny("gpt2").generate(**given))


@pytest.mark.parametrize(("processor", "option"), [
    ("TypicalLogitsWarper", {"typical_p": 0.5}), ("NoRepeatNGramLogitsProcessor", {"no_repeat_ngram_size": 3}),
    ("EpsilonLogitsWarper", {"epsilon_cutoff": 0.1}), ("EtaLogitsWarper", {"eta_cutoff": 0.1}),
    ("RepetitionPenaltyLogitsProcessor", {"repetition_penalty": 1.2})])
def test_every_value_that_is_said_to_switch_an_option_off_does(tiny, processor, option):
    model = deepcopy(tiny("gpt2"))
    model.generation_config.update(**option)
    name, value = OFF[processor].split("=")
    given = {"inputs": ids(), "max_new_tokens": 2, "do_sample": True, "custom_generate": Speculative("sam")}
    with pytest.raises(Refusal, match=processor):
        model.generate(**given)
    assert name in option
    assert model.generate(**given, **{name: type(option[name])(float(value))}).shape[1] == len(PROMPT) + 2


def test_a_batch_and_scores_beside_a_pipeline_are_refused(tiny):
    model = tiny("gpt2")
    with pytest.raises(Refusal, match="a batch of 2 sequences"):
        model.generate(torch.cat((ids(), ids())), custom_generate=Speculative("sam"), max_new_tokens=2)
    with pytest.raises(Refusal, match="output_logits and output_scores are not supported with pearl"):
        model.generate(ids(), custom_generate=Speculative("pearl", draft=model), max_new_tokens=2, output_scores=True,
                       return_dict_in_generate=True)


@pytest.mark.parametrize("config", [transformers.MistralConfig, transformers.Phi3Config, transformers.Gemma3TextConfig])
@pytest.mark.parametrize("spec", ["sam", "token-recycling"])
def test_chains_and_trees_are_lossless_where_a_window_slides(config, spec):
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config(**SMALL, max_position_embeddings=256, sliding_window=8)).eval()
    given = {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 0}
    want = model.generate(ids(), **given)
    assert torch.equal(model.generate(ids(), custom_generate=Speculative(spec), **given), want)


@pytest.mark.parametrize("rope", [{"rope_type": "dynamic", "factor": 8.0},
                                  {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
                                   "factor": 2.0, "original_max_position_embeddings": 32}])
def test_texts_that_outgrow_the_length_from_which_positions_move_are_refused(rope):
    context = 32 if rope["rope_type"] == "dynamic" else 64
    config = transformers.LlamaConfig(**SMALL, max_position_embeddings=context,
                                      rope_parameters={"rope_theta": 100.0, **rope})
    model, given = AutoModelForCausalLM.from_config(config).eval(), {"do_sample": False, "pad_token_id": 0}
    want = model.generate(ids(), max_new_tokens=32 - len(PROMPT), **given)
    plug = Speculative("sam")
    assert torch.equal(model.generate(ids(), max_new_tokens=32 - len(PROMPT), custom_generate=plug, **given), want)
    with pytest.raises(Refusal, match="change with the length beyond 32 tokens"):
        model.generate(ids(), max_new_tokens=33 - len(PROMPT), custom_generate=plug, **given)
    assert HuggingFace(model).context == 32


def test_an_encoder_decoder_is_refused():
    config = transformers.T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2,
                                   decoder_start_token_id=0)
    with pytest.raises(Refusal, match="T5ForConditionalGeneration is an encoder-decoder model"):
        transformers.T5ForConditionalGeneration(config).generate(ids(), custom_generate=Speculative("sam"))


def test_methods_that_this_model_cannot_run_are_refused(tiny, tmp_path):
    with pytest.raises(Refusal, match="there is no method named 'nope'"):
        Speculative("nope")
    with pytest.raises(Refusal, match="named by a text, .*, got None"):
        Speculative(None)
    with pytest.raises(Refusal, match="specdec train eagle"):
        tiny("gpt2").generate(ids(), custom_generate=Speculative("eagle", tmp_path), max_new_tokens=4)
    with pytest.raises(Refusal, match="takes chains only"):
        tiny("bloom").generate(ids(), custom_generate=Speculative("token-recycling"), max_new_tokens=12)
    with pytest.raises(Refusal, match="another architecture"):
        tiny("gpt_neox").generate(ids(), custom_generate=Speculative("eagle"), max_new_tokens=4)
    with pytest.raises(Refusal, match="knows 97 tokens and the target 33"):
        open_model(AutoModelForCausalLM.from_config(transformers.LlamaConfig(
            vocab_size=33, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)),
            Speculative("draft-model").spec, draft=tiny("gpt2"))
    mamba = AutoModelForCausalLM.from_config(transformers.MambaConfig(**STATE))
    for target, draft in ((mamba, tiny("gpt2")), (tiny("gpt2"), mamba)):
        with pytest.raises(Refusal, match="MambaForCausalLM does not keep a row of keys and values"):
            open_model(target, Speculative("draft-model").spec, draft=draft)
