"""Prompt files: what the loader reads, what it refuses and in which words, and what the shipped file holds."""

import json
import re
import statistics

import pytest

from specdec_lib.bench import prompts as bench_prompts
from specdec_lib.bench.prompts import (
    FAMILIES,
    MT_BENCH,
    Prompt,
    balanced,
    default_path,
    file_sha256,
    known_name,
    load_prompts,
)
from specdec_lib.types import Refusal

CARD = default_path().with_name("README.md")
LITTLE_WORDS = {"German": {"und", "der", "die", "wie", "auf"}, "Spanish": {"y", "el", "los", "por", "que"},
                "French": {"et", "le", "la", "à", "un"}, "English": {"the", "a", "and", "of", "to"}}


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
    ({"question_id": 2, "category": "qa"}, "lacks turns"),
    ({"turns": ["Why?"]}, "lacks question_id and category"),
    (line(2.5), "question_id 2.5"), (line(True), "question_id True"), (line(""), "question_id ''"),
    (line(2, category=" "), "category ' '"), (line(2, category=7), "category 7"),
    ({**line(2), "turns": "Why?"}, "list of one or more strings"),
    (line(2, turns=[]), "list of one or more strings"), (line(2, turns=["Why?", 3]), "list of one or more strings"),
    (line(2, turns=["Why?", " \n"]), "empty prompt (turn 2)"), (line(2, turns=[""]), "empty prompt (turn 1)"),
    (line(2, turns=["half \ud83d"]), "broken Unicode in turn 1"),
    (line(2, reference=3), "reference to be a list of strings, got int"),
    (line(2, reference=[["a", 3]]), "reference to be a list of strings, got int")])
def test_a_bad_line_is_refused_by_its_number_in_one_sentence(write, bad, words):
    said = refusal(write(line(1), "", bad))                # the blank line counts, as in an editor
    assert "line 3 of" in said
    assert words in said
    assert "\n" not in said


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


# The shipped file and its card.

def families_of(prompts):
    return {family: [prompt for prompt in prompts if prompt.family == family] for family in FAMILIES}


def test_the_shipped_file_holds_ten_prompts_of_each_family():
    shipped = load_prompts(default_path())
    assert [len(members) for members in families_of(shipped).values()] == [10] * 6
    assert len(shipped) == 60
    assert [prompt.question_id for prompt in shipped] == list(range(1, 61))


def test_twelve_spread_prompts_are_two_of_each_family():
    taken = families_of(balanced(load_prompts(default_path()), 12))
    assert [len(members) for members in taken.values()] == [2] * 6


def test_conversations_have_two_turns_and_all_others_one():
    assert all(len(prompt.turns) == (2 if prompt.family == "multi_turn"
                                     else 1) for prompt in load_prompts(default_path()))


def test_no_shipped_text_repeats_another_or_itself():
    texts = [turn for prompt in load_prompts(default_path()) for turn in prompt.turns]
    sentences = [s for text in texts for s in re.split(r"(?<=[.?!])\s+", text) if len(s) > 60]
    assert len(set(texts)) == len(texts)
    assert len(set(sentences)) == len(sentences)


def test_every_answerable_family_has_references_and_every_problem_ends_in_its_number():
    for family, members in families_of(load_prompts(default_path())).items():
        assert family == "multi_turn" or all(prompt.reference for prompt in members)
        if family == "math_reasoning":
            assert all(re.search(r"\n#### \d+$", prompt.reference[0]) for prompt in members)


def card_rows():
    rows = ([cell.strip() for cell in row.strip("|").split("|")] for row in CARD.read_text("utf-8").splitlines()
            if row.startswith("| ") and " / " in row and "–" in row)
    return {cells[0]: cells for cells in rows}


def test_the_cards_table_is_what_the_file_holds():
    rows = card_rows()
    for family, members in families_of(load_prompts(default_path())).items():
        ids = [prompt.question_id for prompt in members]
        lengths = [sum(map(len, prompt.turns)) for prompt in members]
        _, said_ids, count, turns, characters, _ = rows[family]
        assert said_ids == f"{ids[0]}–{ids[-1]}"
        assert int(count) == len(members)
        assert int(turns) == sum(len(prompt.turns) for prompt in members)
        assert [float(x) for x in characters.split(" / ")] == [
            min(lengths), statistics.median(lengths), max(lengths)]


def test_the_cards_token_counts_fit_its_characters_and_the_long_families_are_long():
    for family, cells in card_rows().items():              # no tokenizer here: 2.2 to 5.5 characters a token
        for characters, tokens in zip(*(cell.split(" / ") for cell in cells[4:6]), strict=True):
            assert 2.2 < float(characters) / float(tokens) < 5.5, family
    for family in ("summarization", "rag"):
        assert all(500 <= float(tokens) <= 900 for tokens in card_rows()[family][5].split(" / "))


def test_the_cards_counts_of_references_and_categories_are_true():
    shipped, said = load_prompts(default_path()), " ".join(CARD.read_text("utf-8").split())
    talks = families_of(shipped)["multi_turn"]
    assert f"in {sum(prompt.reference is not None for prompt in shipped)} lines `reference`" in said
    assert sum(prompt.reference is None for prompt in talks) == 8
    assert "Eight of the ten multi-turn" in said
    names = [prompt.category for prompt in talks]
    assert {name: names.count(name) for name in MT_BENCH} == {
        name: 2 if name in ("writing", "coding") else 1 for name in MT_BENCH}


def language_of(text):
    words = re.findall(r"\w+", text.lower())
    return max(LITTLE_WORDS, key=lambda language: sum(word in LITTLE_WORDS[language] for word in words))


def test_the_card_names_the_language_of_every_prompt():
    said = {int(number): language for language, numbers in
            re.findall(r"^\| (German|Spanish|French) \| ([\d, ]+) \|$", CARD.read_text("utf-8"), re.MULTILINE)
            for number in numbers.split(", ")}
    for prompt in load_prompts(default_path()):
        if prompt.family != "translation":
            assert said.pop(prompt.question_id, "English") == language_of(" ".join(prompt.turns)), prompt.question_id
    assert not said


def test_the_card_names_the_languages_of_every_translation():
    text = " ".join(CARD.read_text("utf-8").split())
    text = text[text.index("Translations:"):text.index("## How")]
    into = {int(n): lang for lang, numbers in re.findall(r"(\w+) to English ([\d, ]+)", text)
            for n in re.findall(r"\d+", numbers)}
    out = {int(n): lang for lang, n in re.findall(r"(\w+) (\d+)", text[text.index("English to"):])}
    translations = {prompt.question_id: prompt.turns[0]
                    for prompt in families_of(load_prompts(default_path()))["translation"]}
    assert (into | out).keys() == translations.keys()
    assert not into.keys() & out.keys()
    for number, turn in translations.items():
        assert (into | out)[number] in turn


# The prompts for tuning.

@pytest.fixture
def tuning():
    return load_prompts(default_path().with_name("tuning.jsonl"))


def texts_of(prompts):
    return [text for prompt in prompts for text in (*prompt.turns, *(prompt.reference or ()))]


def runs_of(prompts, words=8):
    texts = [re.findall(r"\w+", text.casefold()) for text in texts_of(prompts)]
    return {tuple(text[i:i + words]) for text in texts for i in range(len(text) - words + 1)}


def test_the_prompts_for_tuning_have_the_shape_of_those_for_measuring(tuning):
    assert [len(members) for members in families_of(tuning).values()] == [6] * 6
    assert [prompt.question_id for prompt in tuning] == list(range(1001, 1037))
    assert all(len(prompt.turns) == (2 if prompt.family == "multi_turn" else 1) for prompt in tuning)
    assert len({prompt.category for prompt in families_of(tuning)["multi_turn"]} & set(MT_BENCH)) == 6
    assert all(prompt.reference for prompt in tuning if prompt.family != "multi_turn")
    assert all(re.search(r"\n#### \d+$", prompt.reference[0]) for prompt in families_of(tuning)["math_reasoning"])


def test_what_is_tuned_on_is_not_measured_on(tuning):
    measured = load_prompts(default_path())
    assert not {prompt.question_id for prompt in tuning} & {prompt.question_id for prompt in measured}
    assert not set(texts_of(tuning)) & set(texts_of(measured))
    assert len(runs_of(measured)) > 8000
    assert not runs_of(tuning) & runs_of(measured)


def test_the_cards_table_is_what_the_file_for_tuning_holds(tuning):
    rows = re.findall(r"^\| (\w+) \| (\d+) to (\d+) \| (\d+) \| (\d+) \| (\d+) to (\d+) \| (\d+) to (\d+) \|$",
                      CARD.read_text("utf-8"), re.MULTILINE)
    said = {family: list(map(int, numbers)) for family, *numbers in rows}
    for family, members in families_of(tuning).items():
        lengths = [sum(map(len, prompt.turns)) for prompt in members]
        *counts, least, most = said.pop(family)
        assert counts == [members[0].question_id, members[-1].question_id, len(members),
                          sum(len(prompt.turns) for prompt in members), min(lengths), max(lengths)]
        assert 2.2 < max(lengths) / most < 5.5
        assert 2.2 < min(lengths) / least < 5.5
        assert family not in ("summarization", "rag") or 400 <= least <= most <= 800
    assert not said


def test_the_card_names_the_language_of_every_prompt_for_tuning(tuning):
    said = " ".join(CARD.read_text("utf-8").split()).split("English, except for", 1)[1]
    told = {int(number): language for numbers, language in re.findall(r"([\d and]+) \((\w+)\)", said)[:3]
            for number in re.findall(r"\d+", numbers)}
    assert len(told) == 5
    for prompt in tuning:
        if prompt.family != "translation":
            assert told.pop(prompt.question_id, "English") == language_of(" ".join(prompt.turns)), prompt.question_id
    assert not told
