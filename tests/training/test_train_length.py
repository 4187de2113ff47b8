"""`specdec train length-predictor`: what it stores and reports, how it resumes after a kill, what it refuses."""

import json
import re
import shutil
from dataclasses import replace

import pytest
import torch
from filelock import FileLock

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints import checkpoint_files
from specdec_lib.checkpoints.checkpoint_files import CheckpointFolder
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.files import LOCK, OWNER
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training import train_length as module
from specdec_lib.training.data.answer_files import read_answers
from specdec_lib.training.data.dataset import make_dataset
from specdec_lib.training.fit import KEPT_LOG, read_log
from specdec_lib.training.fit_length import LengthSettings
from specdec_lib.training.pipeline import TrainingOrder
from specdec_lib.training.recipes import RECIPES, start
from specdec_lib.training.train_length import LENGTH, train_length
from specdec_lib.types import Refusal
from tests.training.folder import answered_target, other_answers
from tests.training.killed import killed_and_resumed, minutes_twice
from tests.training.lessons import stirred

CARD = {"target": "tiny", "made": {}, "settings": {}, "measured": {}, "limits": []}
ASKED = LengthSettings(longest=4, epochs=2, batch=16, hidden=8)
NAMES = ("eagle", "draft-model", "early-exit")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(target, text, file of answers, folder with three drafters)."""
    torch.set_num_threads(1)
    target, text, data, lessons = answered_target(tmp_path_factory.mktemp("models"))
    out = tmp_path_factory.mktemp("drafters")
    for name in ("eagle", "draft-lm", "early-exit"):
        drafter = stirred(start(RECIPES[name], target, lessons), seed=1)
        checkpoint_files.save_checkpoint(out, name, drafter.state(), drafter.meta(), CARD, RECIPES[name].plan,
                                         target.weights,
                                         fingerprint(target, text))
    return target, text, data, out


@pytest.fixture
def trained(world, tmp_path):
    """Trains into a folder of its own."""
    own, text, data, drafters = world
    shutil.copytree(drafters, tmp_path / "out")

    def training(asked=ASKED, out=tmp_path / "out", progress=lambda *now: None, minutes=9.0, target=own, data=data):
        order = TrainingOrder(out, minutes, data=(data,), target="tiny")
        return train_length(asked, order, target, text, {"commit": "abc"}, progress=progress, shipped=tmp_path / "none")

    return training


def test_one_checkpoint_holds_a_predictor_for_each_drafter_and_is_taken_by_the_command_line(world, trained, tmp_path):
    target, text, *_ = world
    done = trained()
    kept = CheckpointFolder(tmp_path / "out", target, text, "tiny")
    assert all(torch.equal(tensor, kept[LENGTH].state[name]) for name, tensor in done.state.items())
    for name in ("eagle", "early-exit"):
        when = catalog.build(f"{name}@adaeagle", Kit(target.fresh(), TokenizerFacts(), checkpoints=kept,
                                                     parts=catalog.make_part)).when
        assert when.longest == 4
        assert isinstance(when.predict((3, 4, 5)), float)
    assert set(done.meta["drafters"]) == set(NAMES)


def test_its_card_has_held_out_figures_of_the_stored_predictors(world, trained, tmp_path):
    card = trained().card
    told = card["measured"]["held-out"]
    assert set(told) == set(NAMES)
    assert card["settings"]["weight"] == 3.0
    assert card["made"]["commit"] == "abc"
    for figures in told.values():
        assert figures["positions"] > 20
        assert 0 <= figures["kept"] <= figures["mean_label"]
        assert figures["mae"] >= 0
        assert {"too_short", "correlation", "mae_of_best_constant"} <= set(figures)
    assert len({figures["positions"] + figures["positions_without_label"] for figures in told.values()}) == 1
    assert card["made"]["positions"] > 100
    assert 30 < card["made"]["answers"] < 37
    log = read_log(tmp_path / "out" / LENGTH / KEPT_LOG)
    assert [(line["drafter"], line["epoch"]) for line in log] == [(name, epoch) for name in NAMES for epoch in (1, 2)]
    assert (tmp_path / "out" / LENGTH / "README.md").read_text().startswith("# length-predictor")
    assert any("when sampling" in sentence for sentence in card["limits"])


def test_greedy_answers_alone_are_learned_from_and_held_out_ones_only_measured_with(world, tmp_path):
    target, text, data, drafters = world
    shutil.copytree(drafters, tmp_path / "out")
    # drops what is said twice or too short
    lessons = make_dataset(target, text, read_answers(data, target.vocab), None)
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    warm = [{**line, "temperature": 1.0, "output": line["output"][::-1]} for line in lines]
    mixed, said = tmp_path / "mixed.jsonl", []
    mixed.write_text("".join(json.dumps(line) + "\n" for line in lines + warm))
    train_length(ASKED, TrainingOrder(tmp_path / "out", 9.0, data=(mixed,), target="tiny"), target, text, {},
                 said.append)
    found = next(re.findall(r"positions of (\d+) answers to train on, [\d,]+ of (\d+) to", line) for line in said
                 if "to measure with" in line)
    assert found == [tuple(str(sum(map(len, groups))) for groups in (lessons.train, lessons.held))]


@pytest.mark.parametrize("when", [2, 5, 8])
def test_a_killed_run_resumes_to_the_same_checkpoint(world, trained, tmp_path, when):
    whole, again = trained(), killed_and_resumed(trained, world[3], tmp_path / "other", LENGTH, when)
    assert all(torch.equal(tensor, again.state[name]) for name, tensor in whole.state.items())
    assert again.card["measured"] == whole.card["measured"]


def test_the_minutes_of_the_card_are_those_of_all_runs(trained, monkeypatch):
    first, again = minutes_twice(trained, monkeypatch, module, "labelled_positions")
    assert first >= 2
    assert again == first


def test_the_same_order_again_reads_no_answer(world, trained, monkeypatch):
    one = trained()
    monkeypatch.setattr(module, "labelled_positions", lambda *given: pytest.fail("an answer was read again"))
    other = trained()
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())


def test_what_a_target_in_another_dtype_left_in_the_folder_is_not_taken(world, trained, tmp_path):
    *_, data, drafters = world
    shutil.copytree(drafters, tmp_path / "fresh")
    trained(target=Transformer.load(data.parent / "tiny", torch.bfloat16))
    one, other = trained(), trained(out=tmp_path / "fresh")
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())


def test_a_fit_to_other_answers_of_the_same_lengths_is_not_taken(world, trained, tmp_path):
    *_, data, drafters = world
    shutil.copytree(drafters, tmp_path / "fresh")
    trained(data=other_answers(data, tmp_path / "other.jsonl"))
    one, other = trained(), trained(out=tmp_path / "fresh")
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())


@pytest.mark.parametrize("left", ["[3", "{}"])
def test_a_damaged_number_of_what_was_read_is_read_anew(trained, tmp_path, left):
    one = trained()
    for path in (tmp_path / "out/work" / LENGTH).glob("read-*.json"):
        path.write_text(left)
    assert trained().card["measured"] == one.card["measured"]


def test_a_predictor_that_another_process_fits_is_refused_with_its_name(trained, tmp_path):
    trained()
    place, = (tmp_path / "out" / "work" / LENGTH).glob("early-exit-*")
    (place / OWNER).write_text("process 7 on tiny")
    with FileLock(place / LOCK), pytest.raises(Refusal, match="is in use by process 7 on tiny"):
        trained()


def test_when_time_is_short_fewer_answers_are_read(trained, monkeypatch):
    monkeypatch.setitem(module.BATCH, "cpu", 40)
    assert trained(minutes=1e-6).card["made"]["answers"] < 30


def test_no_more_positions_are_read_than_were_asked_for(trained, monkeypatch):
    monkeypatch.setitem(module.BATCH, "cpu", 40)
    few = trained(replace(ASKED, positions=50)).card
    assert 50 <= few["made"]["positions"] < 100


def test_only_the_named_drafters_are_used(trained):
    done = trained(replace(ASKED, drafters=("draft-lm",)))
    assert {name.split(".")[0] for name in done.state} == {"draft-model"}


def test_a_drafter_that_is_missing_is_refused_with_what_makes_it(trained, tmp_path):
    shutil.rmtree(tmp_path / "out" / "early-exit")
    with pytest.raises(Refusal, match="no early-exit in .*`specdec train early-exit .*--drafters leaves it out"):
        trained()


def test_a_cut_checkpoint_is_refused(world, trained, tmp_path):
    trained()
    path = tmp_path / "out" / LENGTH / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    kept = CheckpointFolder(tmp_path / "out", world[0], world[1], "tiny")
    with pytest.raises(Refusal, match="bytes and its card says .* `specdec train length-predictor`"):
        catalog.build("eagle@adaeagle", Kit(world[0].fresh(), checkpoints=kept, parts=catalog.make_part))
