"""A prompt with a turn of the system of its own: in a bench, in answers and in what is trained on them."""

import json
from dataclasses import replace

import pytest

from specdec_lib import cli
from specdec_lib.bench.results import read_results
from specdec_lib.bench.seq2seq_environment import encode as encode_word
from specdec_lib.hub.chat_template import conversation
from specdec_lib.models.table import Table
from specdec_lib.training.data.answers import AnswerPlan, make_answers
from specdec_lib.training.data.shards import read_shards
from specdec_lib.types import Draft, Refusal
from tests.bench.test_run import PROMPTS, TARGET, bench, encode, world
from tests.training.babble import Babble, target

PROMPT = replace(PROMPTS[1], system="ba")
RECORD = {"source": "x", "temperature": 0.0, "prompt": "a", "output": [3, 4]}


def test_in_a_bench_it_stands_before_every_turn(tmp_path):
    seen = []
    bench(tmp_path, [PROMPT], a_world=world(encode=lambda messages: seen.append(list(messages)) or encode(messages)))
    answer = next(decode.text for decode in read_results(tmp_path) if decode.turn == 0)
    said = [("system", "ba"), ("user", "b")]
    assert said in seen
    assert [*said, ("assistant", answer), ("user", "ab")] in seen


def test_a_turn_that_does_not_fit_is_counted_without_it(tmp_path):
    with pytest.raises(Refusal, match="prompt 2 has 7 tokens in turn 1"):
        bench(tmp_path, [replace(PROMPT, system="ba" * 3)], a_world=world(target=Table(TARGET.rows, context=6)))


def test_words_have_none():
    assert encode_word([("user", "a")])
    with pytest.raises(Refusal, match="a prompt has a system turn: remove it"):
        encode_word(conversation(["a"], "Be brief."))


def test_answers_are_the_targets_after_it_and_keep_it(tmp_path):
    class Talk(Babble):
        def encode_chat(self, history):
            texts = [turn if isinstance(turn, str) else turn[1] for turn in history]
            return tuple(i for text in texts for i in super(Talk, self).encode_chat([text]))

    said = [(("system", f"w{9 + n} w8"), ("user", f"w{4 + n} w5 w9"), ("user", "w7 w6")) for n in range(12)]
    chats = [{"messages": [{"role": role, "content": text} for role, text in each]} for each in said]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    text, lm = Talk(), target()
    plan = AnswerPlan(10, 40, own=0.0)
    make_answers(lm, text, tmp_path / "data", 10_000, 5, [tmp_path / "t.jsonl"], batch=5, plan=plan)
    records = list(read_shards(tmp_path / "data"))
    assert {record["system"] for record in records} == {f"w{9 + n} w8" for n in range(12)}
    assert any("earlier" in record for record in records)
    for record in (record for record in records if record["temperature"] == 0):
        tokens = text.encode_chat(conversation([*record.get("earlier", ()), record["prompt"]], record["system"]))
        for token in record["output"]:
            assert int(lm(tokens, Draft()).logits[0].argmax()) == token
            tokens += (token,)


def test_one_that_is_no_text_is_refused_before_a_model_is_loaded(tmp_path, capsys):
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({**RECORD, "system": 3}) + "\n")
    assert cli.run(["train", "eagle", "--target", "/nowhere", "--data", str(path), "--out", str(tmp_path)]) == 2
    assert "where it has them system as text" in " ".join(capsys.readouterr().err.split())
