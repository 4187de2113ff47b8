"""Prompt files: what the loader reads, what it refuses and in which words, and what the shipped file holds."""

import json

import pytest

from specdec_lib.bench import prompts as bench_prompts
from specdec_lib.bench.prompts import (
    MT_BENCH,
    Prompt,
    balanced,
    file_sha256,
    known_name,
    load_prompts,
)
from specdec_lib.types import Refusal


@pytest.fixture
def write(tmp_path):
    """Writes lines (objects or raw strings) to a file and gives its path."""
    def to_file(*lines):
        path = tmp_path / "some.jsonl"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines),
                        encoding="utf-8")
        return path
    return to_file


def line(name=1, category="qa", turns=("Why?",), **more):
    return {"question_id": name, "category": category, "turns": list(turns), **more}


def some(*families):
    return [Prompt(number, family, family, ("Why?",), None) for number, family in enumerate(families)]


def refusal(path):
    with pytest.raises(Refusal) as caught:
        load_prompts(path)
    return str(caught.value)


def test_a_line_becomes_a_prompt_with_all_its_turns(write):
    [prompt] = load_prompts(write(line(81, "writing", ["One.", "Two."], reference=["a", "b"])))
    assert prompt == Prompt(81, "writing", "multi_turn", ("One.", "Two."), ("a", "b"))


def test_mt_benchs_eight_categories_are_one_family(write):
    read = load_prompts(write(*(line(number, category) for number, category in enumerate((*MT_BENCH, "multi_turn")))))
    assert len(MT_BENCH) == 8
    assert {prompt.family for prompt in read} == {"multi_turn"}


def test_the_math_of_mt_bench_is_not_math_reasoning(write):
    talk, problem = load_prompts(write(line(1, "math"), line(2, "math_reasoning")))
    assert (talk.family, problem.family) == ("multi_turn", "math_reasoning")


def test_an_unknown_category_is_its_own_family(write):
    assert load_prompts(write(line(category="haiku")))[0].family == "haiku"


@pytest.mark.parametrize(("reference", "flat"), [
    (None, None), ([], None), ("one", ("one",)), (["one", "two"], ("one", "two")),
    ([["a", "b"], ["c"]], ("a", "b", "c")), ([None, "one"], ("one",)),
    (json.loads("[" * 500 + '"deep"' + "]" * 500), ("deep",))])
def test_references_are_read_whatever_their_nesting(write, reference, flat):
    assert load_prompts(write(line(reference=reference)))[0].reference == flat


def test_a_missing_reference_is_none(write):
    assert load_prompts(write(line()))[0].reference is None


def test_a_line_with_a_prompt_alone_has_its_number_as_id_and_the_name_of_the_file_as_category(write):
    chat = [("user", "One."), ("assistant", "Two."), ("user", "Three.")]
    read = load_prompts(write({"prompt": "Why?"}, "", {"question": "How?", "category": "qa"},
                              {"instruction": "Sum up.", "input": "A text.", "question_id": "x"},
                              {"messages": [{"role": role, "content": text} for role, text in chat]},
                              {"conversations": [{"from": who, "value": who} for who in ("human", "gpt")]}))
    assert read == [Prompt(1, "some", "some", ("Why?",), None), Prompt(3, "qa", "qa", ("How?",), None),
                    Prompt("x", "some", "some", ("Sum up.\n\nA text.",), None),
                    Prompt(5, "some", "some", ("One.", "Three."), None), Prompt(6, "some", "some", ("human",), None)]


def test_a_number_that_a_line_has_for_want_of_an_id_is_no_other_lines_id(write):
    assert "line 2" in refusal(write({"prompt": "Why?"}, line(1)))


def test_blank_lines_a_byte_order_mark_windows_ends_and_unknown_fields_do_no_harm(write):
    path = write("\ufeff" + json.dumps(line("a", difficulty="easy")) + "\r", "", "  ", line("b"))
    assert [prompt.question_id for prompt in load_prompts(path)] == ["a", "b"]


def test_a_line_separator_inside_a_text_does_not_cut_the_line(write):
    raw = json.dumps(line(turns=["before\u2028after"]), ensure_ascii=False)
    assert load_prompts(write(raw))[0].turns == ("before\u2028after",)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    assert "no prompt file" in refusal(tmp_path / "absent.jsonl")
    assert "cannot be read" in refusal(tmp_path)


@pytest.mark.parametrize("lines", [(), ("", "   ")])
def test_a_file_without_prompts_is_refused(write, lines):
    assert "holds no prompts" in refusal(write(*lines))


def test_text_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "latin.jsonl"
    path.write_bytes('{"question_id": 1, "category": "qa", "turns": ["Müll"]}'.encode("latin-1"))
    assert "not UTF-8" in refusal(path)


@pytest.mark.parametrize(("bad", "words"), [
    ('{"question_id": 2, "category"', "not valid JSON"),
    ("[" * 100_000, "nested too deeply"),
    ("[1, 2]", "not a JSON object"),
    ({"question_id": 2, "category": "qa"}, "needs text in turns (a list), in one of prompt, question, instruction, or"),
    ({"prompt": 3}, "needs text in turns"), ({"prompt": ""}, "empty prompt (turn 1)"), ({"messages": []}, "or in the"),
    ({"messages": "Why?"}, "list of objects with role and content"), ({"messages": ["Why?"]}, "list of objects"),
    ({"messages": [{"role": "user"}]}, "needs text in turns"), ({"conversations": [{"value": "a"}]}, "a turn of None"),
    ({"messages": [{"role": "user", "content": "Why?"}, {"role": "system", "content": "Be brief."}]},
     "has a turn of 'system', and a prompt here is what the user says, behind one turn of the system at most: remove"),
    ({"messages": [{"role": "system", "content": " "}, {"role": "user", "content": "Why?"}]}, "a system turn that is"),
    ({"messages": [{"role": "system", "content": [3]}, {"role": "user", "content": "Why?"}]}, "or no whole text"),
    ({"messages": [{"role": "system", "content": "Be brief."}]}, "needs text in turns"),
    ({"messages": [{"role": "tool", "content": "3"}, {"role": "user", "content": "Why?"}]}, "has a turn of 'tool'"),
    ({"question_id": None, "turns": ["Why?"]}, "question_id None"),
    (line(2.5), "question_id 2.5"), (line(True), "question_id True"), (line(""), "question_id ''"),
    (line(2, category=" "), "category ' '"), (line(2, category=7), "category 7"),
    ({**line(2), "turns": "Why?"}, "needs text in turns (a list)"),
    (line(2, turns=[]), "needs text in turns (a list)"), (line(2, turns=["Why?", 3]), "needs text in turns (a list)"),
    (line(2, turns=["Why?", " \n"]), "empty prompt (turn 2)"), (line(2, turns=[""]), "empty prompt (turn 1)"),
    (line(2, turns=["half \ud83d"]), "broken Unicode in turn 1"),
    (line(2, reference=3), "reference to be a list of strings, got int"),
    (line(2, reference=[["a", 3]]), "reference to be a list of strings, got int")])
def test_a_bad_line_is_refused_by_its_number_in_one_sentence(write, bad, words):
    said = refusal(write(line(1), "", bad))                # the blank line counts, as in an editor
    assert "line 3 of" in said
    assert words in said
    assert "\n" not in said


@pytest.mark.parametrize("chat", [
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"},
                  {"role": "assistant", "content": "No."}, {"role": "user", "content": "Why not?"}]},
    {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Why?"},
                  {"role": "user", "content": "Why not?"}]},
    {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Why?"},
                       {"from": "human", "value": "Why not?"}]}], ids=["messages", "developer", "ShareGPT"])
def test_a_chat_may_begin_with_a_turn_of_the_system_which_stands_before_every_turn(write, chat):
    prompt, = load_prompts(write(chat))
    assert (prompt.system, prompt.turns) == ("Be brief.", ("Why?", "Why not?"))
    assert prompt.asked() == [("system", "Be brief."), ("user", "Why?")]
    assert prompt.asked(["So."]) == [*prompt.asked(), ("assistant", "So."), ("user", "Why not?")]
    assert load_prompts(write({"prompt": "Why?", "messages": chat}))[0].system is None       # of another field


@pytest.mark.parametrize(("first", "second"), [(7, 7), ("7", 7), ("x", "x")])
def test_a_repeated_question_id_is_refused_with_both_lines(write, first, second):
    said = refusal(write(line(first), line("other"), line(second)))
    assert "line 3" in said
    assert "of line 1" in said


def test_spread_takes_from_every_family_alike_in_the_order_of_the_file():
    mixed = some("rag", "qa", "qa", "rag", "qa", "rag", "multi_turn")
    assert [prompt.question_id for prompt in balanced(mixed, 5)] == [0, 1, 2, 3, 6]


def test_spread_fills_up_from_the_others_when_a_family_runs_out():
    assert [prompt.question_id for prompt in balanced(some("qa", "qa", "qa", "rag"), 3)] == [0, 1, 3]


def test_spread_prefers_the_six_families_and_then_the_order_of_the_file():
    assert [prompt.family for prompt in balanced(some("verse", "prose", "rag", "qa"), 3)] == ["verse", "rag", "qa"]


@pytest.mark.parametrize("limit", [None, 3, 99])
def test_spread_takes_all_when_asked_for_all_or_more(limit):
    three = some("rag", "qa", "rag")
    assert balanced(three, limit) == three


@pytest.mark.parametrize("limit", [0, -1])
def test_spread_refuses_a_limit_that_leaves_nothing(limit):
    with pytest.raises(Refusal, match="leaves nothing to run"):
        balanced(some("qa"), limit)


def test_spec_bench_is_known_by_its_checksum_and_nothing_else_is(write, monkeypatch):
    path = write("abc")
    assert file_sha256(path) == "edeaaff3f1774ad2888673770c6d64097e391bc362d7d6fb34982ddf0efd18cb"
    assert known_name(file_sha256(path)) is None
    assert known_name("4b6d33e79484f9841c487ee87d1cf6aa8c6066f61d5d482ff09e5a007fafdf04") == "Spec-Bench"
    monkeypatch.setitem(bench_prompts.KNOWN, file_sha256(path), "Ours")
    assert known_name(file_sha256(path).upper()) == "Ours"
