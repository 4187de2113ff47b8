"""A system turn and template switches: what words mean, and what of them reaches the chat template."""

import pytest

from specdec_lib.hub.chat_settings import USUAL, ChatSettings, chat_settings
from specdec_lib.hub.chat_template import conversation
from specdec_lib.hub.locate import model_folder
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.training.data.prompt_sources import opener
from specdec_lib.types import Refusal
from tests.hub.test_tokenizer import small

SWITCHED = ("{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
            "{% if thinking is defined and thinking is false %}[no thought]{% endif %}{{ effort }}")
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turns') }}{% endif %}a"


def written(folder, system=None, *switches):
    text = Tokenizer(folder, chat=chat_settings(system, switches))
    return text.decode(text.encode_chat(["Hi", "Hello", "Bye"]), control=True)


def test_without_words_nothing_is_set():
    assert chat_settings(None, []) == USUAL == ChatSettings(None, {})


@pytest.mark.parametrize(("word", "value"), [
    ("true", True), ("False", False), ("none", None), ("null", None), ("3", 3), ("0.5", 0.5), ("low", "low"),
    ('"3"', "3"), ("a=b", "a=b")])
def test_a_value_is_a_truth_value_a_number_or_text(word, value):
    assert chat_settings(None, [f"x={word}"]).switches == {"x": value}


@pytest.mark.parametrize(("system", "switches", "sentence"), [
    ("", [], "this one is empty"), (" \n", [], "this one is empty"), ("\ud800", [], "no whole text"),
    (None, ["thinking"], "are NAME=VALUE"), (None, ["=1"], "are NAME=VALUE"), (None, ["a="], "are NAME=VALUE"),
    (None, ["a b=1"], "are NAME=VALUE"), (None, ["messages=1"], "messages is set by this package"),
    (None, ["a=1", "a=2"], "a is given twice")])
def test_wrong_words_are_refused_in_a_sentence(system, switches, sentence):
    with pytest.raises(Refusal, match=sentence):
        chat_settings(system, switches)


def test_a_template_reads_the_system_turn_first_and_its_switches_by_name(tmp_path):
    folder = small(tmp_path, SWITCHED)
    assert written(folder) == "[user]Hi[assistant]Hello[user]Bye"
    assert written(folder, "Be brief.", "thinking=false", "effort=low") == (
        "[system]Be brief.[user]Hi[assistant]Hello[user]Bye[no thought]low")
    assert written(folder, None, "thinking=true") == "[user]Hi[assistant]Hello[user]Bye"


def test_a_switch_that_the_template_does_not_read_is_refused(tmp_path):
    with pytest.raises(Refusal, match="does not read 'think'"):
        written(small(tmp_path, SWITCHED), None, "think=false")


def test_without_a_template_a_switch_is_refused_and_a_system_turn_is_the_first_line(tmp_path):
    folder = small(tmp_path)
    with pytest.raises(Refusal, match="does not read 'thinking'"):
        written(folder, None, "thinking=false")
    assert written(folder, "Be brief.") == "Be brief.\nHi\nHello\nBye"


def test_a_template_that_takes_no_system_turn_says_so(tmp_path):
    with pytest.raises(Refusal, match="refuses this: no system turns; give other turns, leave --system out"):
        written(small(tmp_path, NO_SYSTEM), "Be brief.")


def test_a_conversation_with_a_system_turn_of_its_own_keeps_it(tmp_path):
    text = Tokenizer(small(tmp_path, SWITCHED), chat=ChatSettings("Be brief."))
    asked = conversation(["Hi", "Hello", "Bye"], "Be long.")
    assert text.decode(text.encode_chat(asked), control=True) == "[system]Be long.[user]Hi[assistant]Hello[user]Bye"


def test_a_system_turn_stands_before_prompts_that_the_target_makes_up():
    text = Tokenizer(model_folder(), chat=ChatSettings("Be brief."))
    assert text.decode(opener(text), control=True) == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
