"""x"""

import re
import statistics

import pytest

from specdec_lib.bench.prompts import (
    FAMILIES,
    MT_BENCH,
    balanced,
    default_path,
    load_prompts,
)

CARD = default_path().with_name("README.md")
LITTLE_WORDS = {"German": {"und", "der", "die", "wie", "auf"}, "Spanish": {"y", "el", "los", "por", "que"},
                "French": {"et", "le", "la", "à", "un"}, "English": {"the", "a", "and", "of", "to"}}


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
