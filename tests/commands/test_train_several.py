"""Several drafters in one command: one target and one dataset, and the same drafters as in commands of their own."""

import pytest

from specdec_lib.commands import train
from specdec_lib.commands.train import train_by_names
from specdec_lib.types import Refusal
from tests.training.small_order import (  # noqa: F401
    LONG,
    data_fixture,
    folder_fixture,
    quiet,
    target_fixture,
    text_fixture,
    twenty_steps_fixture,
)

NAMES = ("draft-lm", "diffusion-lm", "eagle")


@pytest.fixture
def asked(folder, data):
    def ask(names, out):
        return train_by_names(names, target=str(folder), device="cpu", dtype="fp32", threads=1, minutes=LONG,
                              prompts=[], data=[data], forbid=[], out=out, loss=None, depths=None, cache=1e8, seed=5,
                              say=quiet, progress=quiet)

    return ask


@pytest.fixture
def counted(monkeypatch):
    """How often a target was loaded and a dataset prepared."""
    counts = {}
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


@pytest.mark.parametrize(("names", "sentence"), [
    (("draft-lm", "medusa"), "no drafter named 'medusa'"),
    (("draft-lm", "digits"), "digits is trained in a command of its own"),
    (("draft-lm", "eagle", "draft-lm"), "draft-lm is named twice")])
def test_names_that_do_not_go_together_are_refused_before_training(asked, counted, tmp_path, names, sentence):
    with pytest.raises(Refusal, match=sentence):
        asked(names, tmp_path)
    assert counted == {}
    assert not list(tmp_path.iterdir())
