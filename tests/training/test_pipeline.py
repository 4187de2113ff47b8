"""A training run from a file of answers: what it stores, the content of its card, the use of its minutes."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from specdec_lib.checkpoints import checkpoint_files
from specdec_lib.training import pipeline as module
from specdec_lib.training.data.answer_files import read_answers
from specdec_lib.training.data.dataset import make_dataset
from specdec_lib.training.fit import KEPT_LOG, Settings, read_log
from specdec_lib.training.losses.chunked_head import LABELS
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.diffusion_finetune import ALIGNED_RANK
from specdec_lib.training.pipeline import TrainingOrder, prepare_dataset, train_drafter
from specdec_lib.training.recipes import RECIPES, recipe
from specdec_lib.training.time_budget import TimeBudget
from specdec_lib.types import Refusal
from tests.training.folder import HELD, OPEN, TRAIN
from tests.training.small_order import (  # noqa: F401
    LONG,
    MADE,
    data_fixture,
    folder_fixture,
    quiet,
    target_fixture,
    text_fixture,
    twenty_steps_fixture,
)

BASES = ("eagle", "draft-lm", "diffusion-lm")       # in an order in which each finds its own


@pytest.fixture(scope="module")
def base(target, text, data, tmp_path_factory):
    """A folder with the bases of other drafters, of twenty steps each."""
    out = tmp_path_factory.mktemp("base")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Settings", lambda **given: Settings(**given | {"steps": 20, "rate": 0.02}))
        for name in BASES:
            train_drafter(recipe(name), TrainingOrder(out, LONG, data=(data,), target="tiny"), target, text, MADE)
    return out


def lent(base, out, *names):
    for name in names:
        shutil.copytree(base / name, out / name)


@pytest.mark.parametrize("name", [name for name, which in RECIPES.items() if not which.fills])
def test_a_stored_drafter_has_the_rates_of_its_card_in_the_loop(
        target, text, data, base, tmp_path, twenty_steps, name):
    if recipe(name).upon:
        lent(base, tmp_path, *(one for one in BASES if one != name))
    done = train_drafter(recipe(name), TrainingOrder(tmp_path, LONG, data=(data,), target="tiny"), target, text, MADE)
    measured = done.card["measured"]
    assert list(measured) == ["as trained", "teacher-forced", "as it starts", "from random weights", "live"]
    for part, forced in measured["teacher-forced"].items():
        live = dict(measured["live"][part])
        assert live.pop("prompts") > 5
        assert live == {key: value for key, value in forced.items() if key != "by_family"}
        assert sum(tally["tokens"] for tally in forced["by_family"].values()) == forced["tokens"] > 20
    kept = checkpoint_files.load_checkpoint(tmp_path, name, target.weights)
    assert kept.card == done.card
    assert kept.meta == done.meta
    assert all(torch.equal(tensor, kept.state[key]) for key, tensor in done.state.items())


def test_a_model_that_fills_whole_answers_is_trained_stored_and_measured_by_what_it_fills(
        target, text, data, tmp_path, twenty_steps):
    name = "diffusion-lm-full"
    done = train_drafter(recipe(name), TrainingOrder(tmp_path, LONG, data=(data,), target="tiny"), target, text, MADE)
    measured = {kind: told[name] for kind, told in done.card["measured"].items()}
    assert list(measured) == ["as trained", "teacher-forced", "as it starts", "from random weights"]
    assert all(told["tokens"] == measured["as trained"]["tokens"] and told["tokens"][-1] > 20
               for told in measured.values())
    assert measured["teacher-forced"]["nats_per_token"][-1] < measured["as it starts"]["nats_per_token"][-1]
    kept = checkpoint_files.load_checkpoint(tmp_path, name, target.weights)
    assert kept.meta["attention"] == "full"
    assert kept.card == done.card
    assert "break_even" not in kept.card
    looks = [line for line in read_log(tmp_path / name / KEPT_LOG) if "held_out" in line]
    assert [line["held_out"][name] for line in looks] == [measured["as it starts"], measured["as trained"]]


def test_what_is_measured_is_what_was_stored_and_not_what_was_trained(target, text, data, tmp_path, twenty_steps):
    coarse = replace(recipe("draft-lm"), plan={"norm": "float32", "ids": "int32", "layers.*": "rank1"})
    measured = train_drafter(coarse, TrainingOrder(tmp_path, LONG, data=(data,)), target, text, MADE).card["measured"]
    rates = {kind: told["draft-lm"]["conditional_acceptance"] for kind, told in measured.items()}
    assert rates["teacher-forced"] == rates["live"] != rates["as trained"]


def test_a_card_tells_how_the_drafter_was_made(target, text, data, tmp_path, twenty_steps):
    card = train_drafter(recipe("draft-lm"), TrainingOrder(tmp_path, LONG, data=(data,), target="tiny"), target, text,
                         MADE).card
    lines = read_log(tmp_path / "draft-lm" / KEPT_LOG)
    steps = [line for line in lines if "loss" in line]
    assert MADE.items() <= card["made"].items()
    assert card["made"]["data"] == "even, odd"
    assert card["made"]["steps"] == 20 == len(steps)
    assert card["made"]["tokens_seen"] == steps[-1]["tokens"] > 1000
    assert card["target"]["name"] == "tiny"
    assert card["settings"]["layers"] == [0, 1, 4]
    assert any(f"trained to draft {card['settings']['rows']} tokens" in limit for limit in card["limits"])
    assert [line["step"] for line in lines if "held_out" in line] == [0, 20]
    looks = [line["held_out"]["draft-lm"]["tokens_per_target_forward"] for line in lines if "held_out" in line]
    forced = {key: told["draft-lm"]["tokens_per_target_forward"] for key, told in card["measured"].items()}
    assert [round(look, 4) for look in looks] == [forced["as it starts"], forced["as trained"]]
    assert (tmp_path / "draft-lm" / "README.md").read_text().startswith("# draft-lm")


@pytest.mark.parametrize("labels", LABELS)
def test_a_fit_of_so_many_steps_takes_them_and_its_card_names_the_labels(target, text, data, tmp_path, labels):
    order = TrainingOrder(tmp_path, LONG, data=(data,), steps=3, objective=Objective(labels=labels))
    card = train_drafter(recipe("draft-lm"), order, target, text, MADE).card
    assert (card["made"]["steps"], card["settings"]["steps"], card["settings"]["labels"]) == (3, 3, labels)
    other = replace(order, objective=Objective(labels=LABELS[labels == LABELS[0]]))
    with pytest.raises(Refusal, match="begun with another recipe"):
        train_drafter(recipe("draft-lm"), other, target, text, MADE)


def test_watched_answers_are_measured_in_every_look_and_never_trained_on(target, text, data, tmp_path, twenty_steps):
    lines = data.read_text().splitlines(keepends=True)
    watch, seen = tmp_path / "watch.jsonl", [line for line in lines if json.loads(line)["prompt"] in TRAIN[:5]]
    watch.write_text("".join(seen))
    order = TrainingOrder(tmp_path / "out", LONG, data=(data,), watch=(watch,), target="tiny")
    lessons = prepare_dataset(order, target, text, TimeBudget(LONG), quiet, quiet)
    learned, watched = ({lessons.data[i].prompt for group in groups for i in group}
                        for groups in (lessons.train, lessons.watched))
    assert watched == {text.encode_chat([prompt]) for prompt in TRAIN[:5]}
    assert not watched & learned
    card = train_drafter(recipe("eagle"), order, target, text, MADE).card
    looks = [line for line in read_log(tmp_path / "out/eagle" / KEPT_LOG) if "held_out" in line]
    tokens = sum(len(json.loads(line)["output"]) for line in seen)
    assert [line["watched"]["eagle"]["tokens"] for line in looks] == [tokens, tokens]
    assert sum(family["tokens"] for family in card["measured"]["watched"]["eagle"]["by_family"].values()) == tokens


def test_the_draft_vocabulary_has_the_size_that_was_ordered_and_eagle_unrolls_the_steps_of_its_recipe(
        target, text, data, tmp_path, twenty_steps):
    card = train_drafter(recipe("eagle"), TrainingOrder(tmp_path, LONG, data=(data,), rows=7), target, text, MADE).card
    assert (card["settings"]["rows"], card["settings"]["trained_depth"]) == (7, 5)


def test_a_drafter_with_a_base_is_measured_on_the_same_held_out_answers_as_its_base(
        target, text, data, base, tmp_path, twenty_steps):
    lent(base, tmp_path, "draft-lm", "diffusion-lm")
    order, which = TrainingOrder(tmp_path, LONG, data=(data,), target="tiny"), recipe("diffusion-lm-aligned")
    card = train_drafter(which, order, target, text, MADE).card
    before = json.loads((base / "diffusion-lm" / "card.json").read_text())
    told = {when: {key: value for key, value in parts["diffusion-lm-aligned"].items() if key != "by_family"}
            for when, parts in card["measured"].items()}
    assert told["as it starts"] == {key: value for key, value in
                                    before["measured"]["teacher-forced"]["diffusion-lm"].items() if key != "by_family"}
    assert told["teacher-forced"] != told["as it starts"] != told["from random weights"]
    assert card["settings"]["base"] == {"name": "diffusion-lm", "sha256": before["sha256"]}
    assert (card["settings"]["depth"], card["settings"]["smooth"]) == ("streak", 0.1)
    schemes = {how["scheme"] for tensor, how in card["storage"].items() if tensor.startswith("layers")}
    assert schemes == {f"+rank{ALIGNED_RANK}"}


def test_a_run_from_one_base_does_not_resume_from_another(target, text, data, base, tmp_path,
                                                          twenty_steps):
    lent(base, tmp_path, "draft-lm", "diffusion-lm")
    order, which = TrainingOrder(tmp_path, LONG, data=(data,), target="tiny"), recipe("diffusion-lm-aligned")
    train_drafter(which, order, target, text, MADE)
    train_drafter(recipe("diffusion-lm"), replace(order, seed=5), target, text, MADE)
    with pytest.raises(Refusal, match="was begun for another diffusion-lm: give another --out, or delete it"):
        train_drafter(which, order, target, text, MADE)


def test_the_same_order_again_trains_nothing_and_gives_the_same_drafter(target, text, data, tmp_path, twenty_steps):
    order = TrainingOrder(tmp_path, LONG, data=(data,), target="tiny")
    one, other = (train_drafter(recipe("draft-lm"), order, target, text, MADE) for _ in range(2))
    assert all(torch.equal(tensor, other.state[key]) for key, tensor in one.state.items())
    assert one.card["made"]["steps"] == other.card["made"]["steps"]
    assert one.card["measured"] == other.card["measured"]


def test_held_out_and_forbidden_prompts_are_not_trained_on(target, text, data, tmp_path):
    path = tmp_path / "forbidden.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt.upper()}) + "\n" for prompt in (TRAIN[0], HELD[0])))
    found = prepare_dataset(TrainingOrder(tmp_path, data=(data,), forbidden=(path,)), target, text, TimeBudget(1),
                            quiet, quiet)
    trained = {found.data[i].prompt for group in found.train for i in group}
    held = {found.data[i].prompt for group in found.held for i in group}
    ids = {prompt: text.encode_chat([prompt]) for prompt in OPEN}
    assert trained <= {ids[prompt] for prompt in TRAIN[1:]}
    assert held <= {ids[prompt] for prompt in HELD[1:]}
    assert len(trained) > 20
    assert len(held) > 2


def test_the_first_held_out_batches_are_not_the_shortest(target, text, data):
    found = make_dataset(target, text, read_answers(data, target.vocab), None, batch=16)
    sizes = [len(found.data[group[0]]) for group in found.held]
    assert len(sizes) > 4
    assert sizes != sorted(sizes)
