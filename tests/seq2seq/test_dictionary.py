"""The dictionary's split, its sentences, the shipped held-out words, and what is refused."""

import json

import pytest

from specdec_lib.seq2seq import dictionary
from specdec_lib.seq2seq.alphabet import BOUNDARY, END, FIRST_LETTER, LETTERS, phoneme_text, source_ids
from specdec_lib.types import Refusal

TEXT = ("cat K AE1 T\ncat(2) K AA1 T\ncat(3) K AE0 T\ncat's K AE1 T S\n'em AH0 M # a comment\na.d. EY2 D IY1\n"
        + "".join(f"w{a}{b} W AH0\n" for a in "abcdefghij" for b in "abcdefghijklmnop"))


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "cmudict.dict"
    path.write_text(TEXT)
    return dictionary.read_dictionary(path)


def test_pronunciations_are_gathered_by_word_without_stress_and_without_repeats(words):
    assert [phoneme_text(one) for one in words["cat"]] == ["K AE T", "K AA T"]
    assert phoneme_text(words["'em"][0]) == "AH M"
    assert "a.d." not in words


def test_every_word_is_on_one_side_and_its_possessive_on_the_same(words):
    train, held = dictionary.split(words)
    assert not set(train) & set(held)
    assert set(train) | set(held) == set(words)
    assert 0 < len(held) < len(train) / 8
    for word in (*train, *held):
        assert dictionary.is_held_out(f"{word}'s") == dictionary.is_held_out(word) == (word in held)


def test_a_sentence_is_its_words_with_boundaries_within_its_length(words):
    some = dictionary.sentences(words, 30, seed=3)
    assert some == dictionary.sentences(words, 30, seed=3)
    for count in (5, 10_000):
        kinds = [one["category"] for one in dictionary.records(words, (count, 3))]
        assert kinds == ["words"] * min(count, len(dictionary.words_of(words))) + ["sentences"] * 3
    for one in some:
        [target] = one.targets
        assert len(target) - 1 <= dictionary.LONGEST
        assert target.count(BOUNDARY) == one.text.count(" ") >= 1
        assert target[-1] == END
        assert [LETTERS[token - FIRST_LETTER] for token in one.source[:-1]] == list(one.text)


def test_the_shipped_words_are_held_out_and_read_as_they_were_written():
    shipped = dictionary.read_held_out()
    assert {one.kind: sum(other.kind == one.kind for other in shipped) for one in shipped} == {"words": 300,
                                                                                              "sentences": 100}
    lines = [json.loads(line) for line in dictionary.HELD_OUT.read_text(encoding="utf-8").splitlines()]
    assert [[phoneme_text(target) for target in one.targets] for one in shipped] == [one["reference"] for one in lines]
    assert all(dictionary.is_held_out(word) for one in shipped for word in one.text.split())
    assert dictionary.HELD_OUT.stat().st_size < 100_000
    assert max(len(target) for one in shipped for target in one.targets) <= dictionary.LONGEST + 1


def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path, monkeypatch):
    for text, why in (("caf\u00e9", "got '\u00e9'"), ("4", "got '4'"), ("' '", "no letter")):
        with pytest.raises(Refusal, match=why):
            source_ids(text)
    (tmp_path / "bad.jsonl").write_text('{"turns": []}\n')
    with pytest.raises(Refusal, match="no list of held-out words"):
        dictionary.read_held_out(tmp_path / "bad.jsonl")
    (tmp_path / "empty.dict").write_text("\n")
    with pytest.raises(Refusal, match="holds no words"):
        dictionary.read_dictionary(tmp_path / "empty.dict")
    monkeypatch.setattr(dictionary, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match=r"`pip install -c constraints\.txt -e '\.\[seq2seq\]'`"):
        dictionary.dictionary_file()
