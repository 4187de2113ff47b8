"""A system turn in `answers` and `train`: it stands before every prompt, and answers after another are refused."""

import json

import pytest

from specdec_lib import cli
from specdec_lib.training.data.shards import read_shards
from tests.small_bench import refused
from tests.training.folder import OPEN
from tests.training.small_order import folder_fixture  # noqa: F401

HERE = ["--device", "cpu", "--dtype", "float32", "--threads", "1"]


def test_answers_after_a_system_turn_are_others_and_train_only_with_the_same_one(folder, tmp_path, capsys):
    prompts, here = tmp_path / "prompts.jsonl", ["--target", str(folder), *HERE]
    prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in OPEN))
    asked = ["answers", "--prompts", str(prompts), "--own", "0", "--temperatures", "0", "--max-new-tokens", "12",
             "--minutes", "1", *here, "--out"]
    assert cli.run([*asked, str(tmp_path / "plain")]) == 0
    assert cli.run([*asked, str(tmp_path / "red"), "--system", "red green"]) == 0
    plain, red = ({record["prompt"]: record["output"] for record in read_shards(tmp_path / name)}
                  for name in ("plain", "red"))
    assert plain.keys() == red.keys() == set(OPEN)
    assert plain != red
    train = ["train", "ngram", "--data", str(tmp_path / "red"), "--out", str(tmp_path / "shelf"), *here]
    assert "after another --system or other --template-switches" in refused(train, capsys)
    assert cli.run([*train[:-len(here) - 1], str(tmp_path / "other"), *here, "--system", "red green"]) == 0


@pytest.mark.parametrize(("words", "sentence"), [
    (["train", "digits", "--system", "Be brief."], "for conversations, and digits is trained on none"),
    (["train", "eagle", "--system", ""], "this one is empty"),
    (["answers", "--template-switches", "a"], "are NAME=VALUE")])
def test_settings_of_conversations_are_refused_where_there_are_none_and_where_they_are_wrong(
        words, sentence, tmp_path, capsys):
    assert sentence in refused([*words, "--out", tmp_path / "out"], capsys)
    assert not (tmp_path / "out").exists()


def test_a_switch_that_the_targets_template_does_not_read_is_refused_before_anything_is_made(folder, tmp_path, capsys):
    said = refused(["answers", "--target", folder, "--template-switches", "thinking=false", "--out", tmp_path / "out",
                    *HERE], capsys)
    assert "does not read 'thinking'" in said
    assert not (tmp_path / "out").exists()
