"""Orders of a training run: how its minutes are spent, where answers come from, what is refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from filelock import FileLock

from specdec_lib.files import LOCK, OWNER
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training import pipeline as module
from specdec_lib.training.data.answer_files import read_answers
from specdec_lib.training.data.answers import Made
from specdec_lib.training.data.shards import Shards
from specdec_lib.training.fit import STATE, Progress
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.marks import mark_recipe
from specdec_lib.training.pipeline import (
    TrainingOrder,
    check_sources,
    ensure_answers,
    prepare_dataset,
    recipe_of,
    train_drafter,
)
from specdec_lib.training.recipes import recipe, start
from specdec_lib.training.time_budget import TimeBudget
from specdec_lib.types import Refusal
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


class Stop(Exception):
    """Ends a run where the test has seen enough."""


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("studied", "fitted"), [(0, 8.0), (240, 4.0), (580, 2.5), (900, 2.5)])
def test_the_fit_gets_the_time_left_less_the_share_for_measuring(monkeypatch, target, text, data, tmp_path,
                                                                 studied, fitted):
    clock, given = Clock(), []
    monkeypatch.setattr(module, "TimeBudget", lambda minutes: TimeBudget(minutes, clock))

    def studying(*told):
        clock.now += studied
        return prepare_dataset(*told)

    def fitting(drafter, groups, batch_of, objective, settings, *rest):
        given.append(settings.minutes)
        raise Stop

    monkeypatch.setattr(module, "prepare_dataset", studying)
    monkeypatch.setattr(module, "fit", fitting)
    with pytest.raises(Stop):
        train_drafter(recipe("draft-lm"), TrainingOrder(tmp_path, 10, data=(data,)), target, text, MADE)
    assert given == [pytest.approx(fitted)]


def test_the_seconds_of_a_killed_fit_are_not_left_for_measuring(monkeypatch, target, text, data, tmp_path):
    clock, left = Clock(), []
    monkeypatch.setattr(module, "TimeBudget", lambda minutes: TimeBudget(minutes, clock))

    def resuming(*told):
        clock.now += 60
        return Progress(20, 300.0, 1000)           # 240 of these seconds were of an earlier run

    def measuring(*told):
        left.append(told[-1].left)
        raise Stop

    monkeypatch.setattr(module, "fit", resuming)
    monkeypatch.setattr(module, "store_and_measure", measuring)
    with pytest.raises(Stop):
        train_drafter(recipe("draft-lm"), TrainingOrder(tmp_path, 10, data=(data,)), target, text, MADE)
    assert left == [300]


def test_where_no_time_is_left_little_is_measured_and_the_card_says_how_little(
        monkeypatch, target, text, data, tmp_path, twenty_steps):
    clock = Clock()
    monkeypatch.setattr(module, "TimeBudget", lambda minutes: TimeBudget(minutes, clock))
    real = module.fit

    def late(*told):
        clock.now += 3600
        return real(*told)

    monkeypatch.setattr(module, "fit", late)
    monkeypatch.setattr("specdec_lib.training.data.dataset.batches_of", lambda data, chosen,
                        batch: tuple((i,) for i in chosen))
    measured = train_drafter(recipe("early-exit"), TrainingOrder(tmp_path, 1, data=(data,)), target, text,
                             MADE).card["measured"]
    assert {told["prompts"] for told in measured["live"].values()} == {2}
    assert len({told["tokens"] for told in measured["live"].values()}) == 1                # the same two prompts
    parts = [told["tokens"] for kind in measured if kind != "live" for told in measured[kind].values()]
    assert len(parts) == 8
    assert len(set(parts)) == 1
    assert parts[0] <= 12


def test_answers_that_were_made_are_not_made_again_and_their_time_counts(monkeypatch, target, text, tmp_path):
    calls = []

    def generate(target, text, folder, tokens, minutes, prompts, **rest):
        calls.append((folder, tokens, minutes))
        return Made(1, 10, 1, 1, 90.0, "time")

    monkeypatch.setattr(module, "make_answers", generate)
    clock = Clock()
    Shards(tmp_path / "work" / "answers", "tiny")
    for again in range(2):
        deadline = TimeBudget(10, clock)
        ensure_answers(TrainingOrder(tmp_path, 10), target, text, deadline, quiet, quiet)
        assert deadline.left == (600 if not again else 510)
    assert calls == [(tmp_path / "work" / "answers", 1_000_000, 4.0)]
    ensure_answers(TrainingOrder(tmp_path, 20), target, text, TimeBudget(20, clock), quiet, quiet)
    assert len(calls) == 2
    assert calls[1][2] == 8.0


def test_answers_are_added_where_the_file_of_prompts_has_changed(monkeypatch, target, text, tmp_path):
    calls, prompts = [], tmp_path / "prompts.jsonl"
    made = Made(1, 10, 1, 1, 90.0, "time")
    monkeypatch.setattr(module, "make_answers", lambda *given, **rest: calls.append(1) or made)
    Shards(tmp_path / "work" / "answers", "tiny")
    for line, times in (("one", 1), ("one", 1), ("two", 2)):
        prompts.write_text(f'{{"prompt": "{line}"}}\n')
        order = TrainingOrder(tmp_path, 10, prompts=(prompts,))
        ensure_answers(order, target, text, TimeBudget(10), quiet, quiet)
        assert len(calls) == times


@pytest.mark.parametrize("harm", [shutil.rmtree, lambda answers: (answers / "shard-00000.jsonl.gz").write_bytes(b"")])
def test_answers_that_were_deleted_or_damaged_are_made_again(target, text, tmp_path, harm):
    answers, order = tmp_path / "work" / "answers", TrainingOrder(tmp_path, LONG, tokens=300)
    ensure_answers(order, target, text, TimeBudget(LONG), quiet, quiet)
    before = [*read_answers(answers)]
    harm(answers)
    ensure_answers(order, target, text, TimeBudget(LONG), quiet, quiet)
    assert [*read_answers(answers)] == before


@pytest.mark.parametrize("place", ["work/answers", "work/draft-lm"])
def test_what_another_process_is_making_is_refused_with_its_name(target, text, data, tmp_path, place, twenty_steps):
    order = TrainingOrder(tmp_path, LONG, data=() if place == "work/answers" else (data,))
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / OWNER).write_text("process 7 on tiny")
    with FileLock(tmp_path / place / LOCK), pytest.raises(Refusal, match=f"{place} is in use by process 7 on tiny"):
        train_drafter(recipe("draft-lm"), order, target, text, MADE)


def test_a_folder_that_was_begun_for_another_target_is_refused(target, text, data, tmp_path):
    order = TrainingOrder(tmp_path, data=(data,))
    prepare_dataset(order, target, text, TimeBudget(1), quiet, quiet)
    other = Transformer(replace(target.weights, embedding=target.weights.embedding + 1))
    with pytest.raises(Refusal, match="work was begun for a target with other weights, or .*: give another --out"):
        prepare_dataset(order, other, text, TimeBudget(1), quiet, quiet)
    prepare_dataset(order, target, text, TimeBudget(1), quiet, quiet)


def test_fits_with_a_folder_of_features_in_common_compute_them_once(target, text, data, tmp_path):
    order = TrainingOrder(tmp_path / "first", data=(data,), features=tmp_path / "features")
    counts = []
    for out, rows in (("first", 8192), ("second", 8)):     # the draft vocabulary is not part of them
        one = replace(order, out=tmp_path / out, rows=rows)
        lessons = prepare_dataset(one, target, text, TimeBudget(1), quiet, quiet)
        for group in lessons.train:
            lessons.features(group)
        counts.append(lessons.features.computed)
    assert counts[0] > 0
    assert counts[1] == 0
    assert not list(tmp_path.glob("*/work/features"))
    other = Transformer(replace(target.weights, embedding=target.weights.embedding + 1))
    with pytest.raises(Refusal, match="features was begun for a target with other .*: give another --features"):
        prepare_dataset(replace(order, out=tmp_path / "third"), other, text, TimeBudget(1), quiet, quiet)


@pytest.mark.parametrize(("change", "named"), [
    ({"objective": Objective("tv")}, r"loss \(ce there, tv here\)"), ({"batch": 64}, "tokens of a step"),
    ({"rows": 9}, "draft vocabulary"), ({"learn_prompts": True}, "prompts learned"), ({"data": ()}, "answers"),
    (None, r"dtype \(float32 there, bfloat16 here\)")])
def test_a_fit_that_was_begun_with_another_recipe_is_refused_and_with_the_same_one_resumed(
        folder, target, text, data, tmp_path, twenty_steps, change, named):
    order = TrainingOrder(tmp_path, LONG, data=(data,), tokens=3000)
    first = train_drafter(recipe("draft-lm"), order, target, text, MADE).card
    again = train_drafter(recipe("draft-lm"), replace(order, minutes=2 * LONG), target, text, MADE).card
    assert again["sha256"] == first["sha256"]
    other = target if change else Transformer.load(folder, torch.bfloat16)
    with pytest.raises(Refusal, match=f"begun with another recipe, .*{named}.*: repeat it, give another --out"):
        train_drafter(recipe("draft-lm"), replace(order, **change or {}), other, text, MADE)
    (tmp_path / "work" / "draft-lm" / "recipe.json").write_text("{")
    with pytest.raises(Refusal, match="recipe.json is damaged"):
        train_drafter(recipe("draft-lm"), order, target, text, MADE)


@pytest.mark.parametrize("option", ["forbidden", "watch"])
def test_a_fit_on_answers_of_its_own_is_not_resumed_with_more_left_out(
        target, text, data, tmp_path, twenty_steps, option):
    order, names = TrainingOrder(tmp_path, LONG, tokens=3000), []
    lessons = prepare_dataset(order, target, text, TimeBudget(LONG), quiet, quiet)
    drafter = start(recipe("draft-lm"), target, lessons)
    for one in (order, replace(order, **{option: (data,)})):
        names.append(recipe_of(one, Objective(), drafter, lessons)["texts left out"])
    assert len(set(names)) == 2
    given = replace(order, data=(data,), watch=(data,))
    assert recipe_of(given, Objective(), drafter, lessons)["texts left out"] is None       # the answers' sum says it


def test_a_mark_of_an_earlier_version_takes_the_entries_that_it_lacks(tmp_path):
    mark_recipe(tmp_path, {"loss": "ce"})
    (tmp_path / STATE).touch()
    mark_recipe(tmp_path, {"loss": "ce", "dtype": "float32"})
    with pytest.raises(Refusal, match=r"dtype \(float32 there, bfloat16 here\)"):
        mark_recipe(tmp_path, {"loss": "ce", "dtype": "bfloat16"})


def test_given_answers_of_another_target_are_refused(target, text, tmp_path):
    Shards(tmp_path / "answers", "another")
    order = TrainingOrder(tmp_path / "out", data=(tmp_path / "answers",))
    with pytest.raises(Refusal, match="holds the answers of another target .*: give another folder"):
        prepare_dataset(order, target, text, TimeBudget(1), quiet, quiet)


def test_no_prompt_is_answered_that_would_leave_no_room_for_an_answer(target, text, tmp_path, monkeypatch):
    plans = []
    monkeypatch.setattr(module, "make_answers", lambda *told, plan, **more: plans.append(plan) or Made(
        1, 10, 1, 1, 90.0, "time"))
    (tmp_path / "work").mkdir()
    for context in (512, 256, 40):
        short = Transformer(replace(target.weights, shape=replace(target.shape, context=context)))
        ensure_answers(TrainingOrder(tmp_path, 10), short, text, TimeBudget(10), quiet, quiet)
    assert [(plan.read, plan.max_new) for plan in plans] == [(638, 256), (638, 128), (638, 20)]


@pytest.mark.parametrize(("change", "sentence"), [
    ({"prompt": None}, "record 1 of --watch lacks 'prompt': it needs source"),
    ({"temperature": 0.7}, "none of its answers is greedy: give some of temperature 0")])
def test_answers_that_cannot_be_watched_are_refused_before_a_model_is_loaded(tmp_path, change, sentence):
    record = {"source": "odd", "temperature": 0.0, "prompt": "a k r", "output": [3, 4]} | change
    path = tmp_path / "watch.jsonl"
    path.write_text(json.dumps({name: value for name, value in record.items() if value is not None}) + "\n")
    with pytest.raises(Refusal, match=sentence):
        check_sources(TrainingOrder(tmp_path, watch=(path,)))


def test_without_data_the_target_makes_up_prompts_and_answers_them(target, text, tmp_path, twenty_steps):
    order = TrainingOrder(tmp_path, LONG, tokens=3000)
    card = train_drafter(recipe("draft-lm"), order, target, text, MADE).card
    assert card["made"]["data"] == "self"
    assert card["made"]["tokens_of_data"] > 2000
    assert sum(len(record["output"]) for record in read_answers(tmp_path / "work" / "answers", target.vocab)) >= 3000


@pytest.mark.parametrize("minutes", [0, -1.0, float("nan")])
def test_an_order_without_time_is_refused(tmp_path, minutes):
    with pytest.raises(Refusal, match="--minutes is how long this may take"):
        TrainingOrder(tmp_path, minutes)


@pytest.mark.parametrize("which", ["prompts", "data", "forbidden"])
def test_an_order_with_a_file_that_is_not_there_is_refused(tmp_path, which):
    with pytest.raises(Refusal, match="there is no file .*absent"):
        TrainingOrder(tmp_path, **{which: (tmp_path / "absent.jsonl",)})
