"""The words of a tokenizer are read from its files, and must mean the same on both sides."""

import json
from types import SimpleNamespace

import pytest

from specdec_lib.hub.vocab_overlap import fits_vocab, shared_tokens, token_pieces
from specdec_lib.types import Refusal
from tests.small_bench import WORDS, model_folder

MINE = {"a": 0, "b": 1, "c": 2, "<end>": 3, "<tool>": 4}
TARGET = SimpleNamespace(tokenizer=SimpleNamespace(get_vocab=lambda: MINE, get_added_vocab=lambda: {"<end>": 3,
                                                                                                    "<tool>": 4}))


def written(folder, **files):
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_a_tokenizer_in_one_file_gives_the_pieces_of_transformers(tmp_path):
    folder = model_folder(tmp_path)
    assert token_pieces(folder) == {word: token for token, word in enumerate(WORDS)}


def test_a_tokenizer_of_its_own_code_is_read_without_running_it(tmp_path):
    config = {"tokenizer_class": "DreamTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_dream.Dream", None]},
              "added_tokens_decoder": {"3": {"content": "<end>"}, "4": {"content": "<|mask|>"}}}
    written(tmp_path, vocab={"a": 0, "b": 1, "c": 2}, tokenizer_config=config, added_tokens={"<pad>": 5})
    (tmp_path / "tokenization_dream.py").write_text("raise SystemExit('was run')")
    assert token_pieces(tmp_path) == {"a": 0, "b": 1, "c": 2, "<end>": 3, "<|mask|>": 4, "<pad>": 5}


def test_pieces_with_scores_have_their_index_as_id(tmp_path):
    written(tmp_path, tokenizer={"model": {"vocab": [["a", 0.0], ["b", -1.5]]},
                                 "added_tokens": [{"id": 2, "content": "<mask>"}]})
    assert token_pieces(tmp_path) == {"a": 0, "b": 1, "<mask>": 2}


def test_a_folder_without_a_vocabulary_is_refused(tmp_path):
    with pytest.raises(Refusal, match="holds no tokenizer that transformers can read without running code"):
        token_pieces(written(tmp_path, tokenizer_config={}))


def test_the_other_tokenizer_may_have_more_pieces_and_lack_added_ones():
    assert shared_tokens(TARGET, MINE | {"<mask>": 9}, "x") == frozenset(range(5))
    assert shared_tokens(TARGET, {word: token for word, token in MINE.items() if word != "<tool>"},
                         "x") == frozenset(range(4))


@pytest.mark.parametrize("other", [
    MINE | {"a": 1, "b": 0}, {word: token for word, token in MINE.items() if word != "a"},
    {"a": 0, "b": 1, "c": 2, "<end>": 3, "<mask>": 4}, MINE | {"<end>": 7}, {}], ids=str)
def test_a_missing_piece_or_an_id_with_two_pieces_is_refused(other):
    with pytest.raises(Refusal, match="x has another tokenizer than the target: token . is '"):
        shared_tokens(TARGET, other, "x")


@pytest.mark.parametrize(("draft", "target", "fits"), [(5, 5, True), (5, 8, True), (7, 8, True), (4, 8, False),
                                                       (9, 8, False), (4, 4, True)])
def test_a_draft_model_may_be_padded_less_than_the_target_and_knows_every_piece(draft, target, fits):
    assert fits_vocab(draft, target, TARGET.tokenizer) is fits
