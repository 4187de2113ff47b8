"""Several drafters in one command: one target and one dataset, and the same drafters as in commands of their own."""

from types import SimpleNamespace

import pytest

from specdec_lib.checkpoints.card import read_card
from specdec_lib.commands import train
from specdec_lib.commands.train import train_by_names
from specdec_lib.types import Refusal
from tests.training.other_target import other_target
from tests.training.small_order import (  # noqa: F401
    LONG,
    data_fixture,
    folder_fixture,
    quiet,
    target_fixture,
    text_fixture,
    twenty_steps_fixture,
)

NAMES = ("draft-lm", "diffusion-lm", "eagle", "ngram")


@pytest.fixture
def asked(folder, data):
    def ask(names, out, **other):
        return train_by_names(names, target=str(folder), device="cpu", dtype="fp32", threads=1, minutes=LONG,
                              out=out, cache=1e8, seed=5, say=quiet, progress=quiet, **{
                                  "prompts": [], "data": [data], "forbid": [], "loss": None, "depths": None} | other)

    return ask


@pytest.fixture
def counted(monkeypatch):
    """How often a target was loaded and a dataset prepared."""
    counts = {}
    monkeypatch.setattr("specdec_lib.training.train_ngram.prepare_dataset", None)          # it is given another
    for name in ("open_target", "prepare_dataset"):
        def counting(*told, name=name, made=getattr(train, name)):
            counts[name] = counts.get(name, 0) + 1
            return made(*told)

        monkeypatch.setattr(train, name, counting)
    return counts


def test_drafters_of_one_command_share_what_they_read_and_are_those_of_single_commands(
        asked, counted, tmp_path, twenty_steps):
    cards = asked(NAMES, tmp_path / "together")
    assert [card.split()[1] for card in cards] == list(NAMES)
    assert counted == {"open_target": 1, "prepare_dataset": 1}
    for name in NAMES:
        asked([name], tmp_path / "alone")
        own, other = (tmp_path / folder / name / "model.safetensors" for folder in ("together", "alone"))
        assert own.read_bytes() == other.read_bytes()
    assert counted["open_target"] == 1 + len(NAMES)


@pytest.mark.parametrize("name", ["length-predictor", "h-rad"])
def test_predictors_get_the_shared_dataset_too(asked, counted, tmp_path, monkeypatch, twenty_steps, name):
    shared = []

    def training(settings, order, target, text, made, say, progress, prepare):
        shared.append(prepare(order, target, text, None, say, progress))
        return SimpleNamespace(card=read_card(tmp_path, "draft-lm"))

    monkeypatch.setattr(train, "train_hrad" if name == "h-rad" else "train_length", training)
    asked(["draft-lm", name], tmp_path)
    assert counted["prepare_dataset"] == len(shared) == 1


@pytest.mark.parametrize(("names", "other", "loads"), [
    (("draft-lm", "ngram"), {"rate": 0.1}, 0), (("ngram", "draft-lm"), {"unroll": 2}, 0),
    (("eagle", "draft-lm"), {}, 1)])
def test_what_a_later_name_cannot_take_is_refused_before_the_first_is_trained(
        asked, counted, tmp_path, monkeypatch, names, other, loads):
    monkeypatch.setattr(train, "load_lm", lambda *told: other_target())
    with pytest.raises(Refusal, match="leave out --rate|of eagle alone|draft-lm cannot be trained"):
        asked(names, tmp_path, **other)
    assert counted == ({"open_target": 1} if loads else {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("names", "sentence"), [
    (("draft-lm", "medusa"), "no drafter named 'medusa'"),
    (("draft-lm", "digits"), "digits is trained in a command of its own"),
    (("draft-lm", "eagle", "draft-lm"), "draft-lm is named twice")])
def test_names_that_do_not_go_together_are_refused_before_training(asked, counted, tmp_path, names, sentence):
    with pytest.raises(Refusal, match=sentence):
        asked(names, tmp_path)
    assert counted == {}
    assert not list(tmp_path.iterdir())
