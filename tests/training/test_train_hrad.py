"""`specdec train h-rad`: what it stores and reports, how it resumes after a kill, what it refuses."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from filelock import FileLock

from specdec_lib import catalog
from specdec_lib.bench.options import RunOptions, bench_prepared, prepare
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints import checkpoint_files
from specdec_lib.checkpoints.card import read_card
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder, load_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.cost.curves import CostCurve
from specdec_lib.files import LOCK, OWNER
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.loop import begin
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training import train_hrad as module
from specdec_lib.training import train_length as reading
from specdec_lib.training.data.pending_drafts import PendingDrafts
from specdec_lib.training.fit import KEPT_LOG, read_log
from specdec_lib.training.fit_hrad import HradSettings, fit_hrad
from specdec_lib.training.fit_length import LengthSettings
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.pipeline import TrainingOrder
from specdec_lib.training.train_hrad import NAME, length_predictor_for, train_hrad
from specdec_lib.training.train_length import LENGTH, train_length
from specdec_lib.types import Refusal
from tests.training.folder import answered_target
from tests.training.killed import killed_and_resumed, minutes_twice

CARD = {"target": "tiny", "made": {}, "settings": {}, "measured": {}, "limits": []}
ASKED = HradSettings(longest=2, layers=2, epochs=2, batch=16, hidden=8, narrow=4)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(target, text, file of answers, folder with a draft model: all of the target's layers and some noise)."""
    torch.set_num_threads(1)
    target, text, data, lessons = answered_target(tmp_path_factory.mktemp("models"))
    out = tmp_path_factory.mktemp("drafters")
    drafter, dice = DraftLMNet(target, lessons.ids, tuple(range(target.layers))), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.add_(.2 * parameter.std() * torch.randn(parameter.shape, generator=dice))
    checkpoint_files.save_checkpoint(out, "draft-lm", drafter.state(), drafter.meta(), CARD,
                                     dict.fromkeys(drafter.state(), "float32") | {"ids": "int32"}, target.weights,
                                     fingerprint(target, text))
    return target, text, data, out


@pytest.fixture
def trained(world, tmp_path):
    """Trains into a folder of its own."""
    own, text, data, drafters = world
    shutil.copytree(drafters, tmp_path / "out")

    def training(asked=ASKED, out=tmp_path / "out", progress=lambda *now: None, minutes=9.0, train=train_hrad,
                 target=own):
        order = TrainingOrder(out, minutes, data=(data,), target="tiny")
        return train(asked, order, target, text, {"commit": "abc"}, progress=progress, shipped=tmp_path / "none")

    return training


def test_it_is_stored_with_its_card_and_taken_by_specbranch(world, trained, tmp_path):
    target, text, *_ = world
    done = trained()
    kept = CheckpointFolder(tmp_path / "out", target, text, "tiny")
    assert all(torch.equal(tensor, kept[NAME].state[name]) for name, tensor in done.state.items())
    lm = target.fresh()
    kit = Kit(lm, TokenizerFacts(), draft=draft_lm(kept["draft-lm"].state, target.weights), checkpoints=kept,
              parts=catalog.make_part)
    predict = catalog.build("specbranch(predict='h-rad')", kit).schedule.keep.predict
    lm.prefill((3, 4))
    assert predict(begin((3, 4, 5), 5), 3) in (0, 1, 2)
    assert done.meta["longest"] == 2
    assert done.meta["levels"] == [target.layers - 1, target.layers]
    assert done.meta["drafter"] == kept["draft-lm"].card["sha256"]
    assert (tmp_path / "out" / NAME / "README.md").read_text().startswith("# h-rad")


def test_a_bench_writes_down_the_checksum_of_a_predictor_that_a_parameter_names(world, trained, tmp_path):
    trained()
    prompts, curve, folder = tmp_path / "prompts.jsonl", tmp_path / "curve.json", world[2].parent / "tiny"
    prompts.write_text('{"question_id": 1, "category": "qa", "turns": ["a k r"]}\n')
    CostCurve((1, 5), (8,), ((1.0, 1.25),)).save(curve)
    options = RunOptions("specbranch(depth=2,predict='h-rad')", prompts, str(folder), "cpu", "float32", 1, 4,
                         cost=curve, checkpoints=tmp_path / "out", workers="inline")
    bench_prepared(prepare(options), tmp_path / "run", lambda *now: None, lambda line: None)
    kept = json.loads((tmp_path / "run" / "settings.json").read_text())["loaded"]
    assert {name: kept[name] for name in kept if name != "--target"} == {
        name: read_card(tmp_path / "out", name)["sha256"] for name in (NAME, "draft-lm")}
    trained(replace(ASKED, narrow=3))
    with pytest.raises(Refusal, match=r"\(h-rad of checkpoints is '[0-9a-f]{64}' there and '[0-9a-f]{64}' here\)"):
        bench_prepared(prepare(options), tmp_path / "run", lambda *now: None, lambda line: None)


def test_it_is_compared_with_the_length_predictor_of_its_own_draft_model_alone(world, trained, tmp_path, monkeypatch):
    target, text, _, drafters = world
    order, own = TrainingOrder(drafters), load_checkpoint(drafters, "draft-lm")
    assert length_predictor_for(own, order, target, text, print, SHIPPED) is None          # of another target
    for sha, found in ((own.card["sha256"], True), ("0" * 64, False)):
        rival = replace(own, meta={"drafters": {"draft-model": sha}})
        monkeypatch.setattr(module, "find_drafter", lambda *asked, rival=rival: rival)
        assert (length_predictor_for(own, order, target, text, print, SHIPPED) is rival) == found
    monkeypatch.setattr(module, "find_drafter", lambda *asked: None)
    assert length_predictor_for(own, order, target, text, print, SHIPPED) is None


def test_its_card_compares_the_stored_network_with_the_majority(trained, tmp_path):
    card = trained().card
    told = card["measured"]["held-out"]
    assert set(told) == {NAME, "majority"}
    mine, table = told[NAME], told[NAME]["predicted as none, some, all"]
    sizes = {name: sum(row) for name, row in table.items()}
    assert sum(sizes.values()) == mine["positions"] > 10
    assert told["majority"]["accuracy"] == pytest.approx(sizes[told["majority"]["class"]] / mine["positions"], abs=1e-4)
    gained = told["majority"]["it alone is right"] - told["majority"]["the other alone is right"]
    assert mine["accuracy"] - told["majority"]["accuracy"] == pytest.approx(gained / mine["positions"], abs=2e-4)
    assert sum(card["settings"]["share of each class"].values()) == pytest.approx(1, abs=1e-3)
    assert set(card["settings"]["weight of each class"].values()) == {1.0}
    assert card["made"]["commit"] == "abc"
    assert card["made"]["pending drafts"] > 40
    assert [line["epoch"] for line in read_log(tmp_path / "out" / NAME / KEPT_LOG)] == [1, 2]


def test_beside_a_length_predictor_its_classes_are_compared_with_those(trained):
    trained(LengthSettings(drafters=("draft-lm",), longest=4, epochs=2, batch=16, hidden=8), train=train_length)
    told = trained().card["measured"]["held-out"]
    assert told[LENGTH]["positions"] == told[NAME]["positions"]
    gained = told[LENGTH]["it alone is right"] - told[LENGTH]["the other alone is right"]
    assert told[NAME]["accuracy"] - told[LENGTH]["accuracy"] == pytest.approx(gained / told[NAME]["positions"],
                                                                              abs=2e-4)


@pytest.mark.parametrize("when", [1, 4])
def test_a_killed_run_resumes_to_the_same_checkpoint(world, trained, tmp_path, monkeypatch, when):
    monkeypatch.setitem(reading.BATCH, "cpu", 200)
    whole, again = trained(), killed_and_resumed(trained, world[3], tmp_path / "other", NAME, when)
    assert all(torch.equal(tensor, again.state[name]) for name, tensor in whole.state.items())
    assert again.card["measured"] == whole.card["measured"]


def test_the_minutes_of_the_card_are_those_of_all_runs(trained, monkeypatch):
    first, again = minutes_twice(trained, monkeypatch, module, "pending_drafts")
    assert first >= 2
    assert again == first


def test_the_same_order_again_reads_no_answer(trained, monkeypatch):
    one = trained()
    monkeypatch.setattr(module, "pending_drafts", lambda *given: pytest.fail("an answer was read again"))
    other = trained(replace(ASKED, epochs=2))
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())


def test_what_a_target_in_another_dtype_left_in_the_folder_is_not_taken(world, trained, tmp_path):
    *_, data, drafters = world
    shutil.copytree(drafters, tmp_path / "fresh")
    trained(target=Transformer.load(data.parent / "tiny", torch.bfloat16))
    one, other = trained(), trained(out=tmp_path / "fresh")
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())


def test_a_classifier_that_another_process_fits_is_refused_with_its_name(trained, tmp_path):
    trained()
    place, = {path.parent for path in (tmp_path / "out" / "work" / NAME).glob("*/log.jsonl")}
    (place / OWNER).write_text("process 7 on tiny")
    with FileLock(place / LOCK), pytest.raises(Refusal, match="is in use by process 7 on tiny"):
        trained()


def test_drafts_whose_fate_no_answer_tells_are_refused_with_a_word_on_longer_answers(world, tmp_path):
    none = torch.zeros(0)
    with pytest.raises(Refusal, match="0 pending drafts .* more --data or longer answers"):
        fit_hrad(None, *[PendingDrafts(none, none, none)] * 2, ASKED, tmp_path)


def test_without_a_draft_model_it_is_refused_with_what_makes_one(trained, tmp_path):
    shutil.rmtree(tmp_path / "out" / "draft-lm")
    with pytest.raises(Refusal, match="no draft-lm in .*`specdec train draft-lm"):
        trained()
