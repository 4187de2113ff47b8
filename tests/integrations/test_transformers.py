"""`generate` with a speculative custom_generate gives what plain `generate` gives, and refuses the rest by name."""

import itertools
from copy import deepcopy
from types import SimpleNamespace

import pytest
import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import StopStringCriteria, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specdec_lib.exact import distance, every_outcome
from specdec_lib.hub import locate
from specdec_lib.integrations.generation_request import GenerationRequest, sampling_of
from specdec_lib.integrations.opened_model import llama_view
from specdec_lib.integrations.transformers import FOLDER, Speculative, Written
from specdec_lib.types import Refusal
from tests.integrations.tiny import PROMPT, ids, tiny_fixture  # noqa: F401
from tests.small_bench import model_folder, trained_for

HEADLESS = ("ar", "prompt-lookup", "sam", "token-recycling", "sam+token-recycling", "respec+token-recycling")
PLAIN = {"max_new_tokens": 24, "do_sample": False}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A folder with a tiny Llama, its tokenizer, and an EAGLE head that nobody trained, made for our own decoder."""
    folder = model_folder(tmp_path_factory.mktemp("words") / "tiny")
    shelf = trained_for(folder, folder.parent / "shelf")
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder), shelf


class Seen(transformers.generation.streamers.BaseStreamer):
    """A streamer that notes what it is given."""

    def __init__(self):
        self.notes = []

    def put(self, value):
        self.notes.append(value.tolist())

    def end(self):
        self.notes.append("end")


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "gpt_neox", "gpt2"])
def test_greedy_ids_are_those_of_plain_generate_in_fewer_forwards(tiny, family):
    model, longer = tiny(family), PLAIN | {"max_new_tokens": 48}
    want = model.generate(ids(), **longer)
    forwards = {}
    for method in HEADLESS:
        out = model.generate(ids(), custom_generate=Speculative(method), return_dict_in_generate=True, **longer)
        assert torch.equal(out.sequences, want), method
        forwards[method] = len(out.session.rounds)
    assert forwards["ar"] == want.shape[1] - len(PROMPT)
    assert min(forwards.values()) < forwards["ar"]


def test_on_the_default_target_ids_are_those_of_plain_generate_with_and_without_trained_drafters():
    folder = locate.model_folder("smollm2-135m")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "Write the days of the week twice."}]
    given = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    want = model.generate(**given, max_new_tokens=12, do_sample=False)
    for method in ("sam", "respec", "diffuspec"):
        plug = Speculative(method, tokenizer=tokenizer)
        out = model.generate(**given, max_new_tokens=12, do_sample=False, custom_generate=plug,
                             return_dict_in_generate=True)
        assert torch.equal(out.sequences, want), method
        assert len(out.session.rounds) < 12, method              # the shipped drafters fit this model


def test_the_weights_that_trained_drafters_see_are_those_of_our_own_decoder(words, tmp_path):
    from specdec_lib.hub.load import load_lm

    model, _, _ = words
    model.save_pretrained(tmp_path)
    ours, view = load_lm(tmp_path, torch.float32, "cpu").weights, llama_view(model)
    assert view.shape == ours.shape
    for one, other in zip(view.layers, ours.layers, strict=True):
        assert all(torch.equal(getattr(one, name).dense(), getattr(other, name).dense())
                   for name in ("qkv", "out", "gate_up", "down"))
    assert torch.equal(view.head.dense(), ours.head.dense())


def test_a_head_that_a_tied_config_does_not_share_is_seen_as_the_models_own(tiny):
    model = deepcopy(tiny("llama3"))
    assert llama_view(model).shape.tied
    model.lm_head.weight = torch.nn.Parameter(model.model.embed_tokens.weight.detach().clone())
    assert llama_view(model).shape.tied
    model.lm_head.weight.data.mul_(2)
    assert torch.equal(llama_view(model).head.dense(), model.lm_head.weight)
    assert not llama_view(model).shape.tied


def test_a_model_with_a_quantised_layer_has_no_weights_to_show(tiny):
    model = deepcopy(tiny("llama3"))
    weight = torch.zeros(3, dtype=torch.int8)
    model.model.layers[-1].mlp.down_proj.weight = torch.nn.Parameter(weight, requires_grad=False)
    assert llama_view(model) is None


@pytest.mark.parametrize("method", ["eagle", "eagle2", "respec", "sam+eagle2"])
def test_a_checkpoint_made_for_our_decoder_drafts_for_the_same_model_in_transformers(words, method, recwarn):
    model, tokenizer, shelf = words
    given = {"inputs": ids([2, 3, 4, 5, 2, 3, 4, 5, 2, 3]), "max_new_tokens": 12, "do_sample": False}
    plug = Speculative(method, shelf, tokenizer=tokenizer)
    out = model.generate(**given, custom_generate=plug, return_dict_in_generate=True)
    assert torch.equal(out.sequences, model.generate(**given))
    assert any(round.draft.tokens for round in out.session.rounds)
    assert not [warning for warning in recwarn if "checkpoint" in str(warning.message)]      # its fingerprint fits


def test_a_draft_model_of_the_callers_drafts(tiny):
    model = tiny("gpt_neox")
    plug = Speculative("draft-model(depth=3)", draft=model)
    out = model.generate(ids(), custom_generate=plug, return_dict_in_generate=True, **PLAIN)
    assert torch.equal(out.sequences, model.generate(ids(), **PLAIN))
    assert len(out.session.rounds) == -(-len(out.session.output) // 4)    # all three drafted are accepted


def test_sampled_ids_have_the_distribution_of_transformers_processors():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=5, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                      num_attention_heads=2, initializer_range=0.5, eos_token_id=None)
    model = AutoModelForCausalLM.from_config(config).double().eval()
    processors = LogitsProcessorList([TemperatureLogitsWarper(0.7), TopKLogitsWarper(4), TopPLogitsWarper(0.9)])
    start, config = ids([1, 2, 3, 1, 2]), GenerationConfig()
    want = {}
    with torch.no_grad():
        for tokens in itertools.product(range(5), repeat=2):
            prob = 1.0
            for place, token in enumerate(tokens):
                seen = torch.cat((start, ids(tokens[:place]).long()), 1)
                prob *= float(torch.softmax(processors(seen, model(seen).logits[:, -1]), -1)[0, token])
            want[tokens] = prob
    plug = Speculative("sam@rejection")
    opened = plug.open(model)
    asked = GenerationRequest(tuple(start[0].tolist()), 2, frozenset(), sampling_of(processors, True))

    def once(dice):
        out = plug.decode(opened, asked, Written(start, processors, StoppingCriteriaList(), config, None), dice)
        return tuple(out[0, 5:].tolist())
    assert distance(every_outcome(once), {tokens: prob for tokens, prob in want.items() if prob}) < 1e-9


def test_torchs_seed_repeats_a_sampled_answer_and_another_one_changes_it(tiny):
    plug, model = Speculative("token-recycling"), tiny("llama")         # made before: making it draws numbers, too

    def sampled(seed):
        torch.manual_seed(seed)
        given = {"do_sample": True, "temperature": 1.5, "top_k": 30, "top_p": 0.95, "max_new_tokens": 12}
        return model.generate(ids(), custom_generate=plug, **given).tolist()
    assert sampled(1) == sampled(1) != sampled(2)


def test_top_k_of_one_is_greedy_at_any_temperature(tiny):
    given = {"do_sample": True, "temperature": 2.0, "top_k": 1, "max_new_tokens": 12}
    got = tiny("llama").generate(ids(), custom_generate=Speculative("sam"), **given)
    assert torch.equal(got, tiny("llama").generate(ids(), max_new_tokens=12, do_sample=False))


class StopWithin(transformers.StoppingCriteria):
    """Stops after two tokens of the longest round that `sam` takes."""

    def __init__(self, model):
        out = model.generate(ids(), custom_generate=Speculative("sam"), return_dict_in_generate=True, **PLAIN)
        lengths, self.seen = [len(one.verdict.tokens) for one in out.session.rounds], []
        assert max(lengths) > 3
        self.stop = len(PROMPT) + sum(lengths[:lengths.index(max(lengths))]) + 2

    def __call__(self, input_ids, scores, **more):
        self.seen.append(input_ids.tolist())
        return torch.tensor([input_ids.shape[1] == self.stop])


def test_stopping_criteria_see_every_token_and_stop_within_a_round(tiny):
    model = tiny("gpt2")
    plain, ours = StopWithin(model), StopWithin(model)
    want = model.generate(ids(), stopping_criteria=[plain], **PLAIN)
    got = model.generate(ids(), stopping_criteria=[ours], custom_generate=Speculative("sam"), **PLAIN)
    assert torch.equal(got, want)
    assert ours.seen == plain.seen


def test_session_and_memory_hold_what_was_returned_where_a_criterion_stops_within_a_round(tiny):
    model, plug, told = tiny("gpt2"), Speculative("sam"), []
    plug.open(model).memory["answers"] = SimpleNamespace(finish=told.append)
    got = model.generate(ids(), stopping_criteria=[StopWithin(model)], custom_generate=plug,
                         return_dict_in_generate=True, **PLAIN)
    answer = tuple(got.sequences[0, len(PROMPT):].tolist())
    *before, last = got.session.rounds
    assert [got.session] == told
    assert got.session.output == answer
    assert sum(len(one.verdict.tokens) for one in got.session.rounds) == len(answer)
    assert len(last.verdict.tokens) == len(last.verdict.path) == len(last.logprobs) == 2
    assert got.session.remaining == PLAIN["max_new_tokens"] - len(answer)


def test_end_tokens_and_the_longest_length_end_an_answer(tiny):
    model = tiny("gpt2")
    whole = model.generate(ids(), **PLAIN)[0].tolist()
    ends = [whole[len(PROMPT) + 11], whole[len(PROMPT) + 6]]
    for given in ({"eos_token_id": ends, "max_new_tokens": 24}, {"eos_token_id": ends[0], "max_new_tokens": 24},
                  {"max_length": len(PROMPT) + 5}, {"max_new_tokens": 1}, {"max_time": 0.0, "max_new_tokens": 24}):
        want = model.generate(ids(), do_sample=False, pad_token_id=0, **given)
        got = model.generate(ids(), do_sample=False, pad_token_id=0, custom_generate=Speculative("sam"), **given)
        assert torch.equal(got, want), given


def test_a_streamer_is_given_what_transformers_gives_it(tiny):
    model, plain, ours, folder = tiny("gpt2"), Seen(), Seen(), Seen()
    model.generate(ids(), streamer=plain, **PLAIN)
    model.generate(ids(), custom_generate=Speculative("sam", streamer=ours), **PLAIN)
    model.generate(ids(), custom_generate=FOLDER, trust_remote_code=True, method="sam", streamer=folder, **PLAIN)
    assert plain.notes == ours.notes == folder.notes
    assert len(plain.notes) == 26


def test_transformers_hands_a_callable_no_streamer(tiny):
    """Where this fails, transformers has mended it: the docstring's warning can go."""
    seen = Seen()
    tiny("gpt2").generate(ids(), custom_generate=Speculative("sam"), streamer=seen, **PLAIN)
    assert seen.notes == [ids().tolist()]          # the prompt, no token, no end


def letters() -> transformers.PreTrainedTokenizerFast:
    """A byte-level tokenizer whose tokens are 94 single characters."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE({chr(33 + i): i for i in range(94)}, []))
    made.pre_tokenizer, made.decoder = (kind.ByteLevel(add_prefix_space=False) if place else kind.ByteLevel()
                                        for place, kind in ((1, tokenizers.pre_tokenizers), (0, tokenizers.decoders)))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)


@pytest.mark.parametrize("placed", ["call", "config"])
def test_stop_strings_stop_an_answer_through_the_folder(tiny, placed):
    model, tokenizer = tiny("llama"), letters()
    whole = model.generate(ids(), **PLAIN)[0].tolist()
    stop = tokenizer.decode(whole[len(PROMPT) + 8:len(PROMPT) + 10])
    given = {**PLAIN, "stop_strings": [stop]}
    given = given if placed == "call" else {"generation_config": GenerationConfig(**given)}
    want = model.generate(ids(), **given, tokenizer=tokenizer)
    folder = {"custom_generate": FOLDER, "trust_remote_code": True, "method": "sam"}
    assert torch.equal(model.generate(ids(), **given, tokenizer=tokenizer, **folder), want)
    assert want.shape[1] < len(whole)
    with pytest.raises(Refusal, match="give the model's tokenizer to generate as well"):
        model.generate(ids(), **given, **folder)


def test_beside_a_callable_stop_strings_are_a_criterion(tiny):
    model, tokenizer, plug = tiny("llama"), letters(), Speculative("sam")
    stop = [tokenizer.decode(model.generate(ids(), **PLAIN)[0, len(PROMPT) + 8:len(PROMPT) + 10])]
    want = model.generate(ids(), **PLAIN, stop_strings=stop, tokenizer=tokenizer)
    criteria = [StopStringCriteria(tokenizer, stop)]
    assert torch.equal(model.generate(ids(), **PLAIN, custom_generate=plug, stopping_criteria=criteria), want)
    with pytest.raises(ValueError, match="tokenizer"):               # where this fails, the docstring's warning can go
        model.generate(ids(), **PLAIN, custom_generate=plug, stop_strings=stop, tokenizer=tokenizer)


def test_the_assistant_of_the_folder_is_the_draft_model(tiny):
    model = tiny("gpt2")
    out = model.generate(ids(), custom_generate=FOLDER, trust_remote_code=True, method="draft-model(depth=3)",
                         assistant_model=model, return_dict_in_generate=True, **PLAIN)
    assert torch.equal(out.sequences, model.generate(ids(), **PLAIN))
    assert len(out.session.rounds) == -(-len(out.session.output) // 4)


@pytest.mark.parametrize("sampled", [False, True])
def test_a_dict_holds_the_same_scores_logits_and_cache(tiny, sampled):
    model = tiny("llama")
    given = {"max_new_tokens": 10, "return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    given |= {"do_sample": True, "top_k": 1, "temperature": 0.5} if sampled else {"do_sample": False}
    want = model.generate(ids(), **given)
    got = model.generate(ids(), custom_generate=Speculative("token-recycling"), **given)
    assert list(got) == list(want)                                  # the keys
    assert isinstance(got, type(want))
    for name in ("scores", "logits"):
        one, other = torch.cat(got[name]), torch.cat(want[name])
        assert torch.equal(one.isinf(), other.isinf()), name
        assert torch.allclose(one[~one.isinf()], other[~other.isinf()], atol=1e-4), name
    assert got.past_key_values.get_seq_length() == want.past_key_values.get_seq_length() == 22
    later = model.generate(got.sequences, past_key_values=got.past_key_values, max_new_tokens=5, do_sample=False)
    assert torch.equal(later, model.generate(want.sequences, max_new_tokens=5, do_sample=False))


def test_a_plug_that_is_kept_opens_a_model_once_and_forgets_it_for_another(tiny):
    plug, model = Speculative("sam"), tiny("gpt2")
    first = model.generate(ids(), custom_generate=plug, **PLAIN)
    opened = plug.opened[0]
    assert torch.equal(model.generate(ids(), custom_generate=plug, **PLAIN), first)
    assert plug.opened == [opened]
    tiny("gpt_neox").generate(ids(), custom_generate=plug, **PLAIN)
    assert plug.opened[0].model is tiny("gpt_neox")
