"""Prompts come from the target or from a file, once each, and never from what we measure with."""

import gzip
import json

import pytest

from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.training.data.prompt_sources import (
    LONGEST,
    SHIPPED,
    Asked,
    Sieve,
    cleaned,
    opener,
    read_conversations,
    read_prompts,
    self_prompts,
    shipped,
    texts,
)
from specdec_lib.types import Refusal
from tests.hub.test_tokenizer import small
from tests.training.babble import BEGIN, END, USER, Babble


def lines(path, *rows):
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def test_the_opener_ends_where_the_users_words_begin():
    assert opener(Babble("<begin> w4 <user> {words} <end> <answer>")) == (BEGIN, 4, USER)


def test_a_template_that_writes_the_date_opens_with_the_same_one_every_day(tmp_path):
    text = Tokenizer(small(tmp_path, "{{ strftime_now('%d %b %Y') }} {{ messages[0]['content'] }}"))
    assert text.decode(opener(text)) == "26 Jul 2024 "


def test_a_model_without_template_opens_with_its_begin_token_or_a_few_words():
    assert opener(Babble(None)) == (BEGIN,)
    assert len(opener(Babble(None, begin=None))) == 1


@pytest.mark.parametrize("template", ["no place for words", "{words} <end>"])
def test_a_template_that_hides_the_users_turn_is_refused(template):
    with pytest.raises(Refusal, match="template does not show"):
        opener(Babble(template))


def test_a_made_up_prompt_is_what_stands_before_the_end_token():
    assert self_prompts(Babble(), (7, 8, 9, 10, END)) == "w7 w8 w9 w10"


@pytest.mark.parametrize("output", [(), (END,), (7, 8, 9, 10), (7, 8, USER, 9, 10, END), (7, END)])
def test_a_prompt_that_is_empty_short_cut_or_has_control_tokens_is_dropped(output):
    assert self_prompts(Babble(), output) is None


def test_without_a_template_a_prompt_is_the_first_line_if_it_is_whole():
    class Lines(Babble):
        def decode(self, ids, control=False):
            return super().decode(ids).replace("w4", "\n")

    assert self_prompts(Lines(None), (4, 7, 8, 9, 10, 4, 11)) == "w7 w8 w9 w10"
    assert self_prompts(Lines(None), (7, 8, 9, 10, END)) == "w7 w8 w9 w10"
    assert self_prompts(Lines(None), (7, 8, 9, 10)) is None


@pytest.mark.parametrize("written", ["too short", "incomprehensibilities", "half a letter \ufffd", "a b " * LONGEST])
def test_texts_that_nobody_can_answer_do_not_fit(written):
    assert cleaned(written) is None


def test_a_sieve_lets_a_text_through_once_whatever_its_case_and_blanks():
    sieve = Sieve(["Never  THIS\none"])
    assert [sieve.admit(text) for text in ("never this one", "Another", " another\t", "a third")] == [False, True,
                                                                                                    False, True]


def test_files_of_all_shapes_give_first_turns(tmp_path):
    path = lines(tmp_path / "p.jsonl", {"turns": ["one", "two"]}, {"prompt": "three"}, {"question": "four"},
                 {"instruction": "five", "input": "six"}, {"instruction": "seven", "instances": [{"input": "eight"}]},
                 {"instruction": "nine", "instances": [{"input": ""}]}, {"question": "ten", "input": "no"},
                 {"messages": [{"role": "user", "content": "eleven"}, {"role": "assistant", "content": "no"},
                               {"role": "user", "content": "twelve"}]},
                 {"conversations": [{"from": "gpt", "value": "no"}, {"from": "human", "value": "thirteen"}]})
    assert read_prompts(path) == ["one", "three", "four", "five\n\nsix", "seven\n\neight", "nine", "ten", "eleven",
                                  "thirteen"]
    assert (texts(path)[:3], texts(path)[-3:]) == (["one", "two", "three"], ["eleven", "twelve", "thirteen"])


@pytest.mark.parametrize("packed", [False, True])
def test_conversations_keep_their_turns_and_their_family_or_the_name_of_the_file(tmp_path, packed):
    path = lines(tmp_path / "broad.jsonl", {"id": "a", "family": "chat", "turns": ["one", "two"], "source": "x"},
                 {"prompt": "three"})
    if packed:
        path = tmp_path / "broad.jsonl.gz"
        path.write_bytes(gzip.compress((tmp_path / "broad.jsonl").read_bytes()))
    assert read_conversations(path) == [Asked(("one", "two"), "chat"), Asked(("three",), "broad")]
    assert texts(path) == ["one", "two", "three"]


def test_a_conversation_keeps_its_turn_of_the_system(tmp_path):
    path = lines(tmp_path / "chats.jsonl", {"messages": [{"role": "system", "content": "zero"},
                                                         {"role": "user", "content": "one"}]})
    assert read_conversations(path) == [Asked(("one",), "chats", "zero")]
    assert texts(path) == ["one"]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"turns": []}', '{"turns": [1]}', '{"prompt": " "}',
                                  '{"messages": [{"role": "system", "content": "a"}]}', '{"messages": [1]}',
                                  '{"prompt": 3}', '{"prompt": "a \\ud83d"}', '{"turns": ["a", "\\udc00"]}'])
def test_a_line_without_a_prompt_is_refused_by_its_number(tmp_path, line):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "fine"}\n\n' + line)
    with pytest.raises(Refusal, match="line 3 of"):
        read_prompts(path)


def test_a_file_that_is_missing_or_empty_or_not_text_is_refused(tmp_path):
    with pytest.raises(Refusal, match="no prompt file"):
        read_prompts(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(Refusal, match="holds no prompts"):
        read_prompts(tmp_path / "empty.jsonl")
    for name, data in (("bytes.jsonl", b"\xff\xfe"), ("no.gz", b"{}"), ("cut.gz", gzip.compress(b"{}" * 99)[:-9])):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(Refusal, match="UTF-8"):
            read_prompts(tmp_path / name)


def test_every_turn_of_the_shipped_prompts_is_known():
    lines = [line for name in ("repeating", "similar", "tuning", "workbook")
             for line in (SHIPPED / f"{name}.jsonl").read_text().split("\n")]
    assert shipped() == [turn for line in lines if line.strip() for turn in json.loads(line)["turns"]]
    assert not any(map(Sieve(shipped()).admit, shipped()))
