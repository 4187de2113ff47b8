"""A training run from a file of answers: what it stores, the content of its card, the use of its minutes."""

import gzip
import json
import shutil
from dataclasses import replace

import pytest
import torch
from filelock import FileLock

from specdec_lib.checkpoints import checkpoint_files
from specdec_lib.files import LOCK, OWNER
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training import pipeline as module
from specdec_lib.training.data.answers import Made
from specdec_lib.training.data.dataset import make_dataset
from specdec_lib.training.fit import KEPT_LOG, Settings, read_log
from specdec_lib.training.nets.diffusion_finetune import ALIGNED_RANK
from specdec_lib.training.pipeline import TrainingOrder, ensure_answers, prepare_dataset, read_answers, train_drafter
from specdec_lib.training.recipes import RECIPES, recipe
from specdec_lib.training.time_budget import TimeBudget
from specdec_lib.types import Refusal
from tests.training.folder import HELD, OPEN, TRAIN, answers_file, model_folder

MADE = {"command": "specdec train", "commit": "abc"}
LONG = 9.0                                         # minutes for what is not to be cut


def quiet(*_):
    """Nobody listens."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def target(folder):
    return Transformer.load(folder)


@pytest.fixture(scope="module")
def text(folder):
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def data(folder, tmp_path_factory):
    return answers_file(folder, tmp_path_factory.mktemp("data") / "answers.jsonl")


@pytest.fixture
def twenty_steps(monkeypatch):
    """Fits of twenty large steps, however many minutes they are given."""
    monkeypatch.setattr(module, "Settings", lambda **given: Settings(**given | {"steps": 20, "rate": 0.02}))


@pytest.fixture(scope="module")
def base(target, text, data, tmp_path_factory):
    """A folder with a draft-lm and a diffusion-lm of twenty steps each."""
    out = tmp_path_factory.mktemp("base")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Settings", lambda **given: Settings(**given | {"steps": 20, "rate": 0.02}))
        for name in ("draft-lm", "diffusion-lm"):
            train_drafter(recipe(name), TrainingOrder(out, LONG, data=(data,), target="tiny"), target, text, MADE)
    return out


def lent(base, out, *names):
    for name in names:
        shutil.copytree(base / name, out / name)


@pytest.mark.parametrize("name", [name for name, which in RECIPES.items() if not which.fills])
def test_a_stored_drafter_has_the_rates_of_its_card_in_the_loop(
        target, text, data, base, tmp_path, twenty_steps, name):
    if recipe(name).upon:
        lent(base, tmp_path, *(one for one in ("draft-lm", "diffusion-lm") if one != name))
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
    assert any(f"can only draft {card['settings']['rows']} tokens" in limit for limit in card["limits"])
    assert [line["step"] for line in lines if "held_out" in line] == [0, 20]
    looks = [line["held_out"]["draft-lm"]["tokens_per_target_forward"] for line in lines if "held_out" in line]
    forced = {key: told["draft-lm"]["tokens_per_target_forward"] for key, told in card["measured"].items()}
    assert [round(look, 4) for look in looks] == [forced["as it starts"], forced["as trained"]]
    assert (tmp_path / "draft-lm" / "README.md").read_text().startswith("# draft-lm")


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
    (tmp_path / "work").mkdir()
    for again in range(2):
        deadline = TimeBudget(10, clock)
        ensure_answers(TrainingOrder(tmp_path, 10), target, text, deadline, quiet, quiet)
        assert deadline.left == (600 if not again else 510)
    assert calls == [(tmp_path / "work" / "answers", 1_000_000, 4.0)]
    ensure_answers(TrainingOrder(tmp_path, 20), target, text, TimeBudget(20, clock), quiet, quiet)
    assert len(calls) == 2
    assert calls[1][2] == 8.0


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
    with pytest.raises(Refusal, match="work was begun for a target with other weights: give another --out"):
        prepare_dataset(order, other, text, TimeBudget(1), quiet, quiet)
    prepare_dataset(order, target, text, TimeBudget(1), quiet, quiet)


def test_without_data_the_target_makes_up_prompts_and_answers_them(target, text, tmp_path, twenty_steps):
    order = TrainingOrder(tmp_path, LONG, tokens=3000)
    card = train_drafter(recipe("draft-lm"), order, target, text, MADE).card
    assert card["made"]["data"] == "self"
    assert card["made"]["tokens_of_data"] > 2000
    assert sum(len(record["output"]) for record in read_answers(tmp_path / "work" / "answers", target.vocab)) >= 3000


def test_answers_are_read_from_plain_and_packed_files(data, tmp_path):
    packed = tmp_path / "answers.jsonl.gz"
    packed.write_bytes(gzip.compress(data.read_bytes()))
    assert list(read_answers(packed, 31)) == list(read_answers(data,
                                                               31))
    assert len(list(read_answers(data, 31))) == len(OPEN)


@pytest.mark.parametrize(("written", "sentence"), [
    (b"{not json}\n", "is no file of answers as JSON lines"), (b"\xff\xfe\x00", "is no file of answers as JSON lines"),
    (b"5\n", "record 1 of .* has no output"), (b'["source"]\n', "record 1 of .* has no output"),
    (b'{"output": "text"}\n', "record 1 of .* has no output"),
    (b'{"output": [1, "b"]}\n', "record 1 of .* has no output"),
    (b'{"output": [1, 2]}\n{"output": [3, 31]}\n', "record 2 of .* has no output of token ids of this target, 0 to 30"),
    (b'{"output": [-1]}\n', "record 1 of .* has no output")])
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


@pytest.mark.parametrize("minutes", [0, -1.0, float("nan")])
def test_an_order_without_time_is_refused(tmp_path, minutes):
    with pytest.raises(Refusal, match="--minutes is how long this may take"):
        TrainingOrder(tmp_path, minutes)


@pytest.mark.parametrize("which", ["prompts", "data", "forbidden"])
def test_an_order_with_a_file_that_is_not_there_is_refused(tmp_path, which):
    with pytest.raises(Refusal, match="there is no file .*absent"):
        TrainingOrder(tmp_path, **{which: (tmp_path / "absent.jsonl",)})
