"""A card is read only where every part is of the kind that its readers rely on."""

import json

import pytest

from specdec_lib.checkpoints.card import CARD, read_card
from specdec_lib.types import Refusal

WHOLE = {"name": "eagle", "target": {"name": "tiny", "fingerprint": {"weights": "3f80", "tokenizer": None}},
         "parameters": 9, "bytes": 1, "sha256": "0", "made": {}, "settings": {}, "limits": ["It is small."],
         "measured": {"live": {"eagle": {"tokens_per_target_forward": 2.0}}},
         "storage": {"fc": {"scheme": "int8", "relative_error": 0.01}}}


def test_a_whole_card_is_read_and_one_that_lacks_what_only_some_readers_need(tmp_path):
    (tmp_path / "eagle").mkdir()
    for card in (WHOLE, {name: WHOLE[name] for name in ("bytes", "sha256", "target")}):
        (tmp_path / "eagle" / CARD).write_text(json.dumps(card))
        assert read_card(tmp_path, "eagle") == card


@pytest.mark.parametrize("changed", [
    {"parameters": "x"}, {"made": "x"}, {"settings": [1]}, {"measured": None}, {"measured": {"live": 5}},
    {"measured": {"teacher-forced": {"eagle": {"tokens_per_target_forward": "x"}}}}, {"limits": 5}, {"limits": [5]},
    {"storage": []}, {"storage": {"fc": {}}}, {"sha256": 5}, {"bytes": None}, {"target": "x"},
    {"target": {"name": 5, "fingerprint": {}}}, {"target": {"name": "x", "fingerprint": []}},
    {"target": {"name": "x", "fingerprint": {"weights": 5}}},
    {"target": {"name": "x", "fingerprint": {"weights": "zzzz"}}},
    {"target": {"name": "x", "fingerprint": {"weights": [0] * 768}}}])
def test_a_card_with_a_part_of_another_kind_is_refused(tmp_path, changed):
    (tmp_path / "eagle").mkdir()
    (tmp_path / "eagle" / CARD).write_text(json.dumps(WHOLE | changed))
    with pytest.raises(Refusal, match="is no readable card: copy the checkpoint again"):
        read_card(tmp_path, "eagle")
