"""Conversations in, text out, and what rules need to know of a tokenizer."""

import json
import random
import subprocess
import sys

import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto import tokenization_auto

from specdec_lib.hub import tokenizer as reading
from specdec_lib.hub.locate import model_folder
from specdec_lib.hub.tokenizer import Tokenizer, reader_of, text_of
from specdec_lib.types import Refusal

LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())


@pytest.fixture(scope="module")
def smol():
    return Tokenizer(model_folder())


def small(folder, template=None, eos_in_generation=None, **config):
    """A byte-level tokenizer of 256 letters, two special tokens and a fence, in a folder."""
    vocab = {name: i for i, name in enumerate(["<begin>", "<end>", *LETTERS, "``", "```"])}
    inner = FastTokenizer(models.BPE(vocab, [("`", "`"), ("``", "`")]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<begin>", eos_token="<end>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    if eos_in_generation is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos_in_generation}))
    return folder


def test_a_conversation_is_written_as_the_model_learned_it(smol):
    ids = smol.encode_chat(["Hi", "Hello!", "And 12?"])
    assert smol.decode(ids, control=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n"
        "<|im_start|>user\nAnd 12?<|im_end|>\n<|im_start|>assistant\n")


def test_ids_of_a_conversation_are_those_of_transformers(smol):
    messages = [{"role": "user", "content": "Name three rivers."}]
    theirs = AutoTokenizer.from_pretrained(model_folder()).apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False)
    assert smol.encode_chat(["Name three rivers."]) == tuple(theirs)


def test_the_plain_class_of_transformers_is_the_tokenizer_that_its_search_finds(smol):
    theirs = AutoTokenizer.from_pretrained(smol.folder)
    text = "Il pleut, it's 12:30!\n\n\tdef f(x):\n  return x  # ```\u00e9\U0001f600 <|im_end|>"
    assert reader_of(smol.folder) == "TokenizersBackend"
    assert type(theirs) is type(smol.tokenizer)
    assert theirs.get_vocab() == smol.tokenizer.get_vocab()
    assert theirs.special_tokens_map == smol.tokenizer.special_tokens_map
    assert theirs.chat_template == smol.tokenizer.chat_template
    assert str(theirs.backend_tokenizer.to_str()) == smol.tokenizer.backend_tokenizer.to_str()
    assert theirs(text)["input_ids"] == list(smol.encode(text))


@pytest.mark.parametrize(("file", "changes"), [
    ("config.json", {"model_type": "qwen2"}), ("config.json", {"auto_map": {"AutoConfig": "code.Config"}}),
    ("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"}),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["code.Words", None]}}),
    ("tokenizer_config.json", None)])
def test_any_other_tokenizer_is_found_by_transformers(file, changes, tmp_path):
    assert reader_of(small(tmp_path)) == "TokenizersBackend"
    before = json.loads((tmp_path / file).read_text())
    (tmp_path / file).write_text("{" if changes is None else json.dumps({**before, **changes}))
    assert reader_of(tmp_path) == "AutoTokenizer"


def test_a_plain_tokenizer_imports_no_other_models_code(tmp_path):
    said = ("import sys; from pathlib import Path; from specdec_lib.hub.tokenizer import Tokenizer;"
            f" Tokenizer(Path({str(small(tmp_path))!r})); print('transformers.models.auto' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("template", ["{{ ''.__class__.__mro__[1].__subclasses__() }}",
                                      "{{ cycler.__init__.__globals__ }}", "{% include '/etc/hostname' %}",
                                      "{% set x = messages.append(1) %}"])
def test_a_chat_template_reaches_neither_pythons_objects_nor_files(tmp_path, template):
    with pytest.raises(Refusal, match="has a chat template that refuses this"):
        Tokenizer(small(tmp_path, template)).encode_chat(["a"])


def test_pairs_of_role_and_text_encode_as_turns_do(smol):
    pairs = [("user", "a"), ("assistant", "b"), ("user", "c")]
    assert smol.encode_chat(pairs) == smol.encode_chat(["a", "b", "c"])


def test_a_system_message_replaces_the_default_one(smol):
    written = smol.decode(smol.encode_chat([("system", "Be brief."), ("user", "Hi")]), control=True)
    assert written.startswith("<|im_start|>system\nBe brief.<|im_end|>")
    assert "helpful" not in written


@pytest.mark.parametrize("history", [[], [""], [" \n"], ["Hi", "Hello", ""]])
def test_an_empty_prompt_is_refused(smol, history):
    with pytest.raises(Refusal, match="the prompt is empty"):
        smol.encode_chat(history)


class FailingTokenizer:
    """What a tokenizer without a token for unknown words does."""

    def __call__(self, texts, **how):
        raise Exception("Missing [UNK] token")     # noqa: TRY002 - as tokenizers do


def test_text_without_a_token_and_tokens_that_the_model_does_not_know_are_refused(tmp_path):
    text = Tokenizer(small(tmp_path, vocab_size=40))
    assert text.encode("!!") == (2, 2)
    with pytest.raises(Refusal, match=r"with token \d\d+ and the model knows 0 to 39: it is another model's tokenizer"):
        text.encode_chat(["!~"])
    text.tokenizer.chat_template = "{# nothing #}"
    with pytest.raises(Refusal, match="has no token for any part of this text"):
        text.encode_chat(["!!"])
    text.tokenizer = FailingTokenizer()
    with pytest.raises(Refusal, match="cannot write this text .Missing .UNK. token.: give another one"):
        text.encode("!!")


def test_a_plain_string_instead_of_turns_is_an_error(smol):
    with pytest.raises(ValueError, match="a list of turns"):
        smol.encode_chat("Hi")


def test_without_a_template_the_prompt_is_raw_text_with_one_warning(tmp_path):
    heard = []
    text = Tokenizer(small(tmp_path), warn=heard.append)
    assert not text.has_template
    answers = [text.decode(text.encode_chat(["one", "two", "three"])) for _ in range(2)]
    assert answers == ["one\ntwo\nthree"] * 2
    assert heard == [f"{tmp_path.name} has no chat template: the prompt is given as raw text"]


def test_a_template_that_raises_is_a_refusal(tmp_path):
    text = Tokenizer(small(tmp_path, template="{{ raise_exception('roles must alternate') }}"))
    with pytest.raises(Refusal, match="roles must alternate"):
        text.encode_chat(["Hi"])


@pytest.mark.parametrize(("template", "written"), [
    ("{{ strftime_now('%d %b %Y') }}: {{ messages[0].content }}", "26 Jul 2024: Hi"),
    ("\n \n  {% set day = strftime_now('%A, %B %d') %}\n{{ day }}", "\n \nFriday, July 26"),
    ("{%- set day = strftime_now('%y') %} {{ day }}", " 24"),
    ("{% macro day() %}{{ strftime_now('%Y-%m-%d') }}{% endmacro %}{% if strftime_now is defined %}{{ day() }}{% endif"
     " %}", "2024-07-26"), ("{{ messages[0].content }}", "Hi")])
def test_a_template_that_writes_the_date_writes_the_same_one_every_day(tmp_path, template, written):
    text = Tokenizer(small(tmp_path, template))
    assert text.decode(text.encode_chat(["Hi"])) == written


def test_control_tokens_are_left_out_of_text_unless_asked_for(smol):
    ids = smol.encode("Yes.<|im_end|>")
    assert smol.decode(ids) == "Yes."
    assert smol.decode(ids, control=True) == "Yes.<|im_end|>"
    assert smol.name(2) == "<|im_end|>"


def test_blanks_before_punctuation_are_kept(smol):
    assert smol.decode(smol.encode("a , b .\n  c 's")) == "a , b .\n  c 's"


def test_a_character_spread_over_tokens_is_held_back_until_it_is_whole(tmp_path):
    text = Tokenizer(small(tmp_path))
    stream = text.stream()
    assert [stream.push([token]) for token in text.encode("a😀b")] == ["a", "", "", "", "😀", "b"]


def test_a_stream_gives_the_text_however_the_ids_are_split(smol):
    wanted = "Grüße, 日本語 😀👩‍🚀!\n\n12 naïve – ok\ttabs  and « quotes »"
    ids, dice = smol.encode(wanted), random.Random(0)
    for _ in range(20):
        cuts = sorted(dice.sample(range(1, len(ids)), 5))
        stream = smol.stream()
        pieces = [stream.push(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
        assert "".join(pieces) + stream.finish() == wanted
        assert "\ufffd" not in "".join(pieces)


def test_a_stream_that_ends_inside_a_character_shows_it_at_the_end(tmp_path):
    text = Tokenizer(small(tmp_path))
    stream = text.stream()
    assert stream.push(text.encode("a😀")[:-1]) == "a"
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""


def spaced(folder) -> Tokenizer:
    """A tokenizer of SentencePiece's kind, whose decoding drops the blank before the first word."""
    vocab = {"<unk>": 0, "</s>": 1, "\u2581": 2, "\u2581so": 3, "so": 4, "<0xC3>": 5, "<0xB8>": 6}
    inner = FastTokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="</s>").save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return Tokenizer(folder)


def test_a_token_has_its_blank_where_decoding_drops_the_first_one(tmp_path):
    text = spaced(tmp_path)
    assert text.decode([3]) == "so"
    assert [text.name(token) for token in range(1, 7)] == ["</s>", " ", " so", "so", "\ufffd", "\ufffd"]


def test_a_stream_keeps_the_blank_of_a_word_behind_a_control_token(tmp_path):
    text, dice = spaced(tmp_path), random.Random(0)
    for ids in ([3, 1, 3], [2, 1, 2, 3], *(dice.choices([1, 2, 3, 4], k=9) for _ in range(50))):
        stream = text.stream()
        assert stream.push(ids) + stream.finish() == text.decode(ids)


def test_bytes_of_a_character_are_named_as_they_decode_alone(tmp_path, smol):
    text = Tokenizer(small(tmp_path))
    assert [text.name(token) for token in range(259)] == [text.decode([token], control=True) for token in range(259)]
    assert all(text_of(token, smol.decode) == smol.decode([token]) for token in range(0, 49152, 7))


def test_the_facts_of_the_default_target(smol):
    facts = smol.facts
    assert (facts.end, facts.vocab, facts.context) == (frozenset({2}), 49152, 8192)
    assert facts.control == frozenset(range(17))
    assert sorted(smol.name(token) for token in facts.digit) == list("0123456789")
    assert sorted(smol.name(token) for token in facts.fence) == [" ```", "```"]


def test_end_tokens_come_from_the_generation_config_and_the_tokenizer_together(tmp_path):
    text = Tokenizer(small(tmp_path, eos_in_generation=[7, 9], vocab_size=300, max_position_embeddings=64))
    assert (text.facts.end, text.facts.vocab, text.facts.context) == (frozenset({1, 7, 9}), 300, 64)


def test_without_a_generation_config_the_config_names_the_end(tmp_path):
    assert Tokenizer(small(tmp_path, eos_token_id=5)).facts.end == {1, 5}
    assert Tokenizer(tmp_path).facts.context is None
    assert Tokenizer(tmp_path).facts.fence == {259}


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(Refusal, match="holds no tokenizer"):
        Tokenizer(tmp_path)


def test_a_sentencepiece_file_that_nothing_here_reads_is_refused_with_what_reads_it(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>")
    monkeypatch.setattr(reading, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match="`pip install sentencepiece protobuf`"):
        Tokenizer(tmp_path)
    monkeypatch.setattr(reading, "find_spec", lambda name: name)
    with pytest.raises(Refusal, match="fetch the model again"):
        Tokenizer(tmp_path)


def test_a_tokenizer_of_mistrals_is_read_without_mistrals_own_package(tmp_path, monkeypatch):
    small(tmp_path, model_type="mistral")
    (tmp_path / "tekken.json").write_text("{}")
    probe = tokenization_auto._use_mistral_format
    asked = []
    monkeypatch.setattr(tokenization_auto, "TOKENIZER_MAPPING_NAMES",
                        {**tokenization_auto.TOKENIZER_MAPPING_NAMES, "mistral": "MistralCommonBackend"})
    monkeypatch.setattr(tokenization_auto, "_use_mistral_format",
                        lambda *about, **how: (asked.append(how["mistral_format"]), probe(*about, **how))[1])
    assert Tokenizer(tmp_path).encode("a") == Tokenizer(small(tmp_path)).encode("a")
    assert asked == [False]


def test_a_broken_configuration_is_refused(tmp_path):
    small(tmp_path)
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(Refusal, match="not readable JSON"):
        Tokenizer(tmp_path)
