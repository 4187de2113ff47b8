"""The generator: shares of temperatures, its budget, and the same shards however often it is killed."""

import itertools
import json
from collections import Counter
from dataclasses import replace

import pytest
import torch

from specdec_lib.hub.chat_settings import ChatSettings
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.answers import MIX, PROMPT, AnswerPlan, PromptLot, make_answers, name_of
from specdec_lib.training.data.examples import normalised
from specdec_lib.training.data.prompt_sources import Sieve
from specdec_lib.training.data.shards import read_shards
from specdec_lib.types import Draft, Refusal
from tests.training.babble import END, VOCAB, Babble, target
from tests.training.other_target import other_target

TEXT, SMALL = Babble(), AnswerPlan(size=10, max_new=40)


def made(folder, tokens=600, seed=3, text=TEXT, **more):
    torch.set_num_threads(1)
    return make_answers(target(seed), text, folder, tokens, **{"plan": SMALL, "batch": 4, "minutes": 5, **more})


def questions(path, count, start=0):
    path.write_text("".join(json.dumps({"prompt": f"w{4 + n % 28} w{4 + n // 28} w{5 + n % 9} w9"}) + "\n"
                            for n in range(start, start + count)))
    return path


def test_half_of_the_answers_are_greedy_three_in_ten_lukewarm_two_in_ten_warm(tmp_path):
    result = made(tmp_path, 1500)
    found = Counter(record["temperature"] for record in read_shards(tmp_path))
    assert result.shards >= 4
    assert result.stopped == "tokens"
    whole = result.records // 10                   # the last shard may stop early
    for temperature, tenths in ((0, 5), (0.7, 3), (1, 2)):
        assert tenths * whole <= found[temperature] <= tenths * (whole + 1)
    assert Counter(MIX) == {0.0: 5, 0.7: 3, 1.0: 2}


def test_there_are_as_many_tokens_as_asked_and_the_counts_are_those_on_disk(tmp_path):
    result = made(tmp_path, 500)
    outputs = [record["output"] for record in read_shards(tmp_path)]
    assert 500 <= sum(map(len, outputs)) == result.tokens
    assert len(outputs) == result.records
    assert all(END not in output[:-1] and (output[-1] == END or len(output) <= 40) for output in outputs)
    assert any(output[-1] == END for output in outputs)
    again = made(tmp_path, 500)
    assert (again.shards, again.tokens) == (0, result.tokens)


def test_prompts_differ_within_and_between_shards(tmp_path):
    made(tmp_path, 1000)
    prompts = [normalised(record["prompt"]) for record in read_shards(tmp_path)]
    assert len(set(prompts)) == len(prompts) > 20


class Killed(Exception):
    """Stands for a signal."""


def kill_after(answers):
    left = itertools.count(answers, -1)

    def progress(tokens, seconds):
        if next(left) == 0:
            raise Killed

    return progress


def test_a_target_that_transformers_runs_says_its_greedy_answers_and_goes_on_after_a_kill(tmp_path):
    lm, path = other_target(VOCAB, num_hidden_layers=1), questions(tmp_path / "q.jsonl", 16)

    def speak(folder, **more):
        return make_answers(lm, TEXT, folder, 10_000, 5, [path], plan=AnswerPlan(size=8, max_new=20, own=0.0), batch=4,
                            **more)

    speak(tmp_path / "whole")
    with pytest.raises(Killed):
        speak(tmp_path / "killed", progress=kill_after(11))
    assert speak(tmp_path / "killed").shards == 1  # the first was whole
    records = list(read_shards(tmp_path / "whole"))
    assert list(read_shards(tmp_path / "killed")) == records
    greedy = [record for record in records if record["temperature"] == 0]
    assert greedy
    for record in greedy[:4]:
        tokens = TEXT.encode_chat([record["prompt"]])
        for token in record["output"]:
            assert int(lm(tokens, Draft()).logits[0].argmax()) == token
            tokens += (token,)


def test_a_prompt_is_made_up_within_a_context_that_is_shorter_than_prompts_may_be(tmp_path):
    short = other_target(VOCAB, max_position_embeddings=60, num_hidden_layers=1)
    lot = PromptLot(TEXT, SMALL, 0, Sieve(set()), iter(()), 100, short.context)
    request = lot.poll()
    assert len(request.prompt) + request.limit == 60
    assert PromptLot(TEXT, SMALL, 0, Sieve(set()), iter(()), 100).poll().limit == PROMPT
    assert PromptLot(TEXT, SMALL, 0, Sieve(set()), iter(()), 100, len(request.prompt)).poll() is None


@pytest.mark.parametrize("file", [False, True])
def test_a_killed_run_goes_on_to_the_very_records_of_one_that_was_not(tmp_path, file):
    more = {"prompts": [questions(tmp_path / "q.jsonl", 40)]} if file else {}
    made(tmp_path / "whole", 900, **more)
    for answers in (3, 45, 30):
        with pytest.raises(Killed):
            made(tmp_path / "killed", 900, progress=kill_after(answers), **more)
    made(tmp_path / "killed", 900, **more)
    assert list(read_shards(tmp_path / "killed")) == list(read_shards(tmp_path / "whole"))


def test_a_damaged_shard_is_made_again_as_it_was(tmp_path):
    made(tmp_path, 900, prompts=[])
    before, path = list(read_shards(tmp_path)), tmp_path / "shard-00001.jsonl.gz"
    path.write_bytes(b"damaged")
    made(tmp_path, 900)
    assert list(read_shards(tmp_path)) == before


def test_another_seed_asks_other_things(tmp_path):
    for seed in (0, 1):
        made(tmp_path / str(seed), 200, plan=AnswerPlan(10, 40, seed=seed))
    one, two = ({record["prompt"] for record in read_shards(tmp_path / str(seed))} for seed in (0, 1))
    assert not one & two


def test_forbidden_prompts_are_never_asked_whoever_has_them(tmp_path):
    made(tmp_path / "free", 600, prompts=[questions(tmp_path / "q.jsonl", 30)])
    records = list(read_shards(tmp_path / "free"))
    own = next(record["prompt"] for record in records if record["source"] == "self")
    given = next(record["prompt"] for record in records if record["source"] == "q")
    closed = [f" {own.upper()} ", given.replace(" ", "\n")]
    made(tmp_path / "closed", 600, prompts=[tmp_path / "q.jsonl"], forbidden=closed)
    found = {normalised(record["prompt"]) for record in read_shards(tmp_path / "closed")}
    assert found
    assert not found & set(map(normalised, closed))


def test_a_shipped_prompt_in_a_file_is_passed_over(tmp_path, monkeypatch):
    path = questions(tmp_path / "q.jsonl", 5)
    first = json.loads(path.read_text().split("\n")[0])["prompt"]
    monkeypatch.setattr("specdec_lib.training.data.answers.shipped", lambda: [first.upper()])
    made(tmp_path / "data", 10_000, prompts=[path], plan=AnswerPlan(10, 40, own=0.0))
    assert len(found := [record["prompt"] for record in read_shards(tmp_path / "data")]) == 4
    assert first not in found


@pytest.mark.parametrize("own", [0.0, 0.5])
def test_a_file_whose_prompts_are_all_forbidden_is_refused_and_no_prompt_is_made_up_for_it(tmp_path, own):
    path = questions(tmp_path / "q.jsonl", 3)
    closed = [json.loads(line)["prompt"] for line in path.read_text().splitlines()]
    with pytest.raises(Refusal, match="each prompt in .*q.jsonl is forbidden or .*: give others, or leave --prompts"):
        made(tmp_path / "data", prompts=[path], forbidden=closed, plan=AnswerPlan(10, 40, own=own))


def test_prompts_longer_than_the_plan_reads_are_passed_over(tmp_path):
    path, room = questions(tmp_path / "q.jsonl", 3), len(TEXT.encode_chat(["w4 w4 w5 w9"]))
    path.write_text(path.read_text() + json.dumps({"prompt": "w4 w4 w5 w9 w9"}) + "\n")
    result = made(tmp_path / "data", 10_000, prompts=[path], plan=AnswerPlan(10, 40, own=0.0, read=room))
    assert result.records == 3


def test_a_file_gives_its_share_until_it_is_used_up(tmp_path):
    made(tmp_path / "data", 2000, prompts=[questions(tmp_path / "q.jsonl", 12)])
    sources = [record["source"] for record in read_shards(tmp_path / "data")]
    assert Counter(sources)["q"] == 12
    assert Counter(sources[:20])["q"] in (9, 10, 11)


def test_a_file_alone_ends_with_its_last_prompt(tmp_path):
    result = made(tmp_path / "data", 10_000, prompts=[questions(tmp_path / "q.jsonl", 13)],
                  plan=AnswerPlan(10, 40, own=0.0))
    assert (result.records, result.stopped, result.tried) == (13, "prompts", 0)


def talks(path, count):
    turns = [[f"w{4 + n} w{5 + n} w9", f"w7 w{6 + n}", "w8"] for n in range(count)]
    path.write_text("".join(json.dumps({"family": "talk", "turns": each}) + "\n" for each in turns))
    return path


def test_turns_are_asked_one_after_the_other_with_the_targets_own_answers_between(tmp_path):
    made(tmp_path / "data", 10_000, prompts=[talks(tmp_path / "t.jsonl", 12)], plan=AnswerPlan(10, 40, own=0.0))
    records = list(read_shards(tmp_path / "data"))
    assert {record["source"] for record in records} == {"talk"}
    said = {(*record.get("earlier", ()), record["prompt"]): TEXT.decode(record["output"]) for record in records}
    assert {len(turns) for turns in said} == {1, 3, 5}
    assert len([turns for turns in said if len(turns) == 1]) == 12
    assert all(said[turns[:-2]] == turns[-2] for turns in said if len(turns) > 1)


def test_a_greedy_answer_to_a_later_turn_is_the_targets_after_all_that_was_said(tmp_path):
    class Talk(Babble):
        def encode_chat(self, history):
            return tuple(i for turn in history for i in super(Talk, self).encode_chat([turn]))

    text, lm = Talk(), target()
    make_answers(lm, text, tmp_path / "data", 10_000, 5, [talks(tmp_path / "t.jsonl", 12)],
                 plan=AnswerPlan(10, 40, own=0.0),
                 batch=5)
    later = [record for record in read_shards(tmp_path / "data") if "earlier" in record and record["temperature"] == 0]
    assert len(later) > 3
    for record in later:
        tokens = text.encode_chat([*record["earlier"], record["prompt"]])
        for token in record["output"]:
            assert int(lm(tokens, Draft()).logits[0].argmax()) == token
            tokens += (token,)


def test_a_conversation_that_was_killed_half_way_goes_on_to_the_same_records(tmp_path):
    more = {"prompts": [talks(tmp_path / "t.jsonl", 20)], "plan": AnswerPlan(10, 40, own=0.0)}
    made(tmp_path / "whole", 10_000, **more)
    for answers in (3, 20):
        with pytest.raises(Killed):
            made(tmp_path / "killed", 10_000, progress=kill_after(answers), **more)
    made(tmp_path / "killed", 10_000, **more)
    assert list(read_shards(tmp_path / "killed")) == list(read_shards(tmp_path / "whole"))


def test_a_conversation_with_a_forbidden_turn_is_not_begun(tmp_path):
    made(tmp_path / "data", 10_000, prompts=[talks(tmp_path / "t.jsonl", 3)], plan=AnswerPlan(10, 40, own=0.0),
         forbidden=["W7  w7"])
    firsts = {record["prompt"] for record in read_shards(tmp_path / "data") if "earlier" not in record}
    assert firsts == {"w4 w5 w9", "w6 w7 w9"}


def test_the_run_ends_within_its_minutes_and_keeps_what_was_said(tmp_path):
    ticks = itertools.count()
    result = made(tmp_path, 10 ** 6, minutes=5, clock=lambda: float(next(ticks)), plan=AnswerPlan(size=500, max_new=40))
    assert result.stopped == "time"
    assert 300 <= result.seconds <= 310
    assert 0 < result.records == len(list(read_shards(tmp_path)))
    later = made(tmp_path, 10 ** 6, minutes=5, clock=lambda: float(next(ticks)))
    assert later.records > result.records


def test_answers_that_loop_are_cut(tmp_path):
    forgetful = Transformer(replace(target().weights, layers=()))     # greedy, it goes round in a circle of words
    make_answers(forgetful, TEXT, tmp_path, 2000, 5, plan=AnswerPlan(size=20, max_new=200), batch=4, target="forgetful")
    greedy = [record["output"] for record in read_shards(tmp_path) if record["temperature"] == 0]
    stopped = [output for output in greedy if output[-1] != END]
    assert stopped
    assert all(64 < len(output) <= 64 + 2 * VOCAB for output in stopped)


def test_data_of_other_weights_are_not_added_to(tmp_path):
    made(tmp_path, 100)
    with pytest.raises(Refusal, match="another target"):
        made(tmp_path, 100, seed=4)
    assert name_of(target(), TEXT) == name_of(target(), TEXT) != name_of(target(4), TEXT)


def test_answers_after_another_system_turn_are_not_added_to(tmp_path):
    made(tmp_path, 100)
    brief = Babble(chat=ChatSettings(system="w5 w6"))
    with pytest.raises(Refusal, match="or those after another --system"):
        make_answers(target(), brief, tmp_path, 200, minutes=5, plan=SMALL, batch=4)
    assert len({name_of(target(), Babble(chat=chat)) for chat in (
        ChatSettings(), ChatSettings("w5"), ChatSettings(switches={"a": 1}), ChatSettings(switches={"a": 2}))}) == 4


class Mute(Babble):
    def decode(self, ids, control=False):
        return ""


def test_a_target_that_makes_up_nothing_is_told_to_bring_a_file(tmp_path):
    for more in ({"plan": AnswerPlan(size=1, max_new=5)}, {"clock": itertools.count(0, 2).__next__}):     # time is up
        with pytest.raises(Refusal, match=r"none of the prompts .* \([1-9]\d* whole ones\): give some with --prompts"):
            make_answers(target(), Mute(), tmp_path, 100, 5.0, **more)


def test_answers_that_leave_no_room_for_a_prompt_are_refused_before_a_token_is_made(tmp_path):
    short = other_target(VOCAB, max_position_embeddings=40, num_hidden_layers=1)
    with pytest.raises(Refusal, match="holds 40 tokens, and an answer of 38 leaves no room .* smaller --max-new"):
        make_answers(short, TEXT, tmp_path, 100, 1.0, plan=AnswerPlan(10, 38))
    asked = {"prompts": [questions(tmp_path / "q.jsonl", 3)], "plan": AnswerPlan(10, 30, own=0.0)}
    assert make_answers(short, TEXT, tmp_path, 99, 1.0, **asked).records == 3


@pytest.mark.parametrize(("own", "also"), [(0.0, "give"), (0.5, "the target made up none that can be used")])
def test_a_file_of_long_prompts_alone_is_refused_with_what_they_may_have(tmp_path, own, also):
    (tmp_path / "q.jsonl").write_text(json.dumps({"prompt": "w4 " * 600}) + "\n")
    with pytest.raises(Refusal, match=f"each prompt in .*q.jsonl has more than 472 tokens, .*{also}"):
        made(tmp_path / "data", prompts=[tmp_path / "q.jsonl"], plan=AnswerPlan(1, 40, own=own), text=Mute())


def test_nonsense_is_refused(tmp_path):
    for more in ({"tokens": 0}, {"minutes": 0}, {"batch": 0}):
        with pytest.raises(Refusal, match="nothing to do"):
            made(tmp_path, **{"tokens": 10, **more})
    with pytest.raises(Refusal, match="share"):
        AnswerPlan(own=1.5)
