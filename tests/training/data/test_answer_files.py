"""Files of answers are read plain or packed, and what cannot be learned from is refused by its record."""

import gzip

import pytest

from specdec_lib.training.data.answer_files import read_answers
from specdec_lib.types import Refusal
from tests.training.folder import OPEN, answers_file, model_folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return answers_file(model_folder(folder / "tiny"), folder / "answers.jsonl")


def test_answers_are_read_from_plain_and_packed_files(data, tmp_path):
    packed = tmp_path / "answers.jsonl.gz"
    packed.write_bytes(gzip.compress(data.read_bytes()))
    assert list(read_answers(packed, 31)) == list(read_answers(data, 31))
    assert len(list(read_answers(data, 31))) == len(OPEN)


def test_blank_lines_between_answers_are_passed_over(data, tmp_path):
    spaced = tmp_path / "answers.jsonl"
    spaced.write_text("\n" + data.read_text().replace("\n", "\n \n") + "\n")
    assert list(read_answers(spaced, 31)) == list(read_answers(data, 31))


@pytest.mark.parametrize(("written", "sentence"), [
    (b"{not json}\n", "is no file of answers as JSON lines"), (b"\xff\xfe\x00", "is no file of answers as JSON lines"),
    (b"5\n", "record 1 of .* has no output"), (b'["source"]\n', "record 1 of .* has no output"),
    (b'{"output": "text"}\n', "record 1 of .* has no output"),
    (b'{"output": [1, "b"]}\n', "record 1 of .* has no output"),
    (b'{"output": [1, 2]}\n{"output": [3, 31]}\n', "record 2 of .* has no output of token ids of this target, 0 to 30"),
    (b'{"output": [-1]}\n', "record 1 of .* has no output"),
    (b'{"output": [1], "prompt": " "}\n', "record 1 of .* has a turn of the user without text"),
    (b'{"output": [1], "prompt": "a", "earlier": ["", "b"]}\n', "record 1 of .* has a turn of the user without text"),
    (b'{"output": [1], "prompt": "a", "earlier": ["b"]}\n', "earlier as a list of the user's turns and the answers")])
def test_a_file_that_holds_no_answers_of_this_target_is_refused(tmp_path, written, sentence):
    path = tmp_path / "answers.jsonl"
    path.write_bytes(written)
    with pytest.raises(Refusal, match=sentence):
        list(read_answers(path, 31))


def test_a_packed_file_that_was_cut_short_is_refused(data, tmp_path):
    path = tmp_path / "answers.jsonl.gz"
    path.write_bytes(gzip.compress(data.read_bytes())[:-20])
    with pytest.raises(Refusal, match="is no file of answers"):
        list(read_answers(path, 31))
