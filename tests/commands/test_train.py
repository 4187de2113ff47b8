"""What was asked for on the command line becomes a target, an order and a provenance, or one refusal."""

from pathlib import Path

import pytest
import torch

from specdec_lib.checkpoints.card import refuse_other_folder
from specdec_lib.commands import train, train_own
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.recipes import recipe
from specdec_lib.types import Refusal
from tests.held_folder import refused_beside_another
from tests.training.folder import model_folder
from tests.training.other_target import other_target


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def asked(folder, tmp_path):
    """Calls `train_by_names` with one name and one thing changed."""
    def ask(name="eagle", **other):
        words = {"target": str(folder), "device": "cpu", "dtype": "fp32", "threads": 1, "minutes": 1.0, "prompts": [],
                 "data": [], "forbid": [], "out": tmp_path, "loss": None, "depths": None, "cache": 1e6, "seed": 5,
                 "say": lambda line: None, "progress": lambda done, total, what: None}
        return train.train_by_names([name], **words | other)[0]

    return ask


def test_what_another_process_trains_measures_or_writes_is_refused(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "train_ngram", lambda *given: given[-1]() and pytest.fail("both train"))
    monkeypatch.setattr(train, "prepare_dataset", lambda: True)
    monkeypatch.setattr(train_own, "train_verifier", lambda *given: pytest.fail("both train"))
    with refused_beside_another(tmp_path / "work" / "ngram"):
        asked("ngram", dtype="float32")
    with refused_beside_another(tmp_path / "work" / "g2p"):
        asked("g2p", target=train.DEFAULT, dtype="float32", cache=train.TrainingOrder.cache)


class Seen(Exception):
    """Carries what `train` was given."""


@pytest.fixture
def given(asked, monkeypatch):
    def training(*told):
        raise Seen(*told)

    def seen(name="eagle", **other):
        with pytest.raises(Seen) as caught:
            asked(name, **other)
        return caught.value.args

    monkeypatch.setattr(train, "train_drafter", training)
    monkeypatch.setattr(train, "train_ngram", training)
    return seen


@pytest.mark.parametrize("names", [("README.md", ".git"), ("config.json", "model.safetensors"), ("README.md",)])
@pytest.mark.parametrize("drafter", ["eagle", "ngram", "digits"])
def test_a_folder_of_somebody_else_in_the_place_of_the_checkpoint_is_refused(asked, tmp_path, names, drafter):
    (tmp_path / drafter).mkdir()
    for name in names:
        (tmp_path / drafter / name).write_text("mine")
    with pytest.raises(Refusal, match="no card.json, so it is no checkpoint of `specdec train`: give another --out"):
        asked(drafter)
    assert {path.read_text() for path in (tmp_path / drafter).iterdir()} == {"mine"}
    refuse_other_folder(tmp_path, "draft-lm")


def test_a_checkpoint_whose_card_a_kill_kept_back_may_be_made_again(tmp_path):
    (tmp_path / "eagle").mkdir()
    (tmp_path / "eagle" / "model.safetensors").write_text("whole")
    (tmp_path / "eagle" / ".card.json.partial-1").write_text("half")
    refuse_other_folder(tmp_path, "eagle")
    (tmp_path / "ngram").write_text("a file")
    with pytest.raises(Refusal, match="ngram is a file"):
        refuse_other_folder(tmp_path, "ngram")


def test_words_become_an_order(given, tmp_path, folder):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a b c"}\n')
    which, order, lm, text, made, *_ = given("eagle", prompts=[prompts], loss="tv", depths="dpace")
    assert which.name == "eagle"
    assert order.objective == Objective("tv", "dpace")
    assert (order.out, order.minutes, order.prompts, order.seed, order.cache) == (tmp_path, 1.0, (prompts,), 5, 1e6)
    assert order.target == folder.name             # a path says where a model lies on one machine
    assert lm.dtype == torch.float32
    assert text.facts.vocab == lm.vocab


def test_an_ngram_is_counted_and_no_recipe_is_asked_for(given):
    order, lm, *_ = given("ngram")
    assert order.minutes == 1.0
    assert lm.layers == 5


def test_a_card_gets_the_command_the_commit_and_the_machine(given):
    made = given()[4]
    assert set(made) == {"command", "commit", "changed", "date", "machine", "threads", "dtype", "torch"}
    assert made["dtype"] == "float32"
    assert made["torch"] == torch.__version__
    assert len(made["date"]) == 10


@pytest.mark.parametrize(("wrong", "sentence"), [
    ({"name": "medusa"}, "no drafter named 'medusa'"), ({"minutes": 0.0}, "--minutes"),
    ({"loss": "l2"}, "no loss 'l2'"), ({"depths": "even"}, "weights 'even'"), ({"device": "tpu"}, "no device named"),
    ({"dtype": "int3"}, "no dtype named"), ({"data": [Path("absent.jsonl")]}, "no file absent.jsonl"),
    ({"target": "/nowhere/at/all"}, "nowhere")], ids=lambda word: str(word)[:24])
def test_wrong_words_are_refused_in_a_sentence(asked, wrong, sentence):
    with pytest.raises(Refusal, match=sentence):
        asked(**wrong)


@pytest.fixture
def neox(monkeypatch):
    """Every folder holds a model that transformers runs."""
    monkeypatch.setattr(train, "load_lm", lambda *told: other_target())


def test_a_drafter_that_starts_from_layers_is_refused_for_a_target_that_transformers_runs(asked, neox):
    with pytest.raises(Refusal, match="draft-lm cannot be trained for tiny: draft-lm starts from the layers"):
        asked("draft-lm")


def test_a_drafter_that_any_target_can_have_is_trained_for_one_that_transformers_runs(given, neox):
    assert given("eagle")[0].name == "eagle"
    assert given("ngram")[1].vocab == 40


def test_length_predictors_leave_out_the_drafters_that_the_target_cannot_have(asked, neox, monkeypatch):
    def training(*told):
        raise Seen(*told)

    said = []
    monkeypatch.setattr(train, "train_length", training)
    with pytest.raises(Seen) as caught:
        asked("length-predictor", say=said.append)
    assert caught.value.args[0].drafters == ("eagle",)
    assert said[-1] == "left out, since they start from the target's own layers: draft-lm, early-exit"
    with pytest.raises(Refusal, match="early-exit cannot be trained for tiny"):
        asked("length-predictor", lengths={"drafters": ("eagle", "early-exit")})


@pytest.mark.parametrize(("name", "wrong", "named"), [
    ("draft-lm", {"depths": "dpace"}, "--depths"),
    ("early-exit", {"depths": "streak", "smooth": .1}, "--depths, --smooth"),
    ("diffusion-lm", {"depths": "decay", "attention": "full"}, "--depths"), ("diffusion-lm", {"rows": 99}, "--rows"),
    ("block-diffusion", {"rows": 99}, "--rows"), ("diffusion-lm-aligned", {"rows": 99}, "--rows"),
    ("ngram", {"loss": "tv", "optimiser": "adamw", "rate": 7.0, "batch": 5}, "--loss, --optimiser, --rate, --batch"),
    ("length-predictor", {"loss": "tv"}, "--loss"), ("h-rad", {"optimiser": "muon"}, "--optimiser")])
def test_an_option_that_a_training_does_not_read_is_refused(asked, name, wrong, named):
    with pytest.raises(Refusal, match=f"^leave out {named}: the training of {name}.* does not read (it|them)$"):
        asked(name, **wrong)


def test_an_unknown_optimiser_or_a_rate_of_zero_is_refused(tmp_path):
    from specdec_lib.training.pipeline import TrainingOrder

    for wrong in ({"optimiser": "sgd"}, {"rate": 0.0}):
        with pytest.raises(Refusal, match="--optimiser is adamw or muon|--rate is above 0"):
            TrainingOrder(tmp_path, **wrong)


def test_what_is_asked_of_a_length_predictor_becomes_its_own_order(asked, monkeypatch):
    def training(*told):
        raise Seen(*told)

    monkeypatch.setattr(train, "train_length", training)
    with pytest.raises(Seen) as caught:
        asked("length-predictor", lengths={"drafters": ("eagle",), "longest": 6, "weight": 2.0}, rate=.01)
    lengths, order, lm, *_ = caught.value.args
    assert (lengths.drafters, lengths.longest, lengths.weight) == (("eagle",), 6, 2.0)
    assert (lengths.rate, lengths.seed) == (.01, 5)
    assert order.minutes == 1.0
    assert lm.layers == 5


def test_what_is_asked_of_h_rad_becomes_its_own_order(asked, monkeypatch):
    def training(*told):
        raise Seen(*told)

    monkeypatch.setattr(train, "train_hrad", training)
    with pytest.raises(Seen) as caught:
        asked("h-rad", lengths={"longest": 6, "positions": 40}, rate=.01)
    settings = caught.value.args[0]
    assert (settings.longest, settings.positions, settings.rate, settings.seed) == (6, 40, .01, 5)


@pytest.mark.parametrize(("name", "wrong", "takers"), [
    ("eagle", {"longest": 6}, "length-predictor and h-rad"), ("eagle", {"drafters": ("eagle",)}, "length-predictor"),
    ("h-rad", {"drafters": ("eagle",)}, "length-predictor"), ("h-rad", {"weight": 2.0}, "length-predictor")])
def test_what_is_of_a_predictor_alone_is_refused_for_others(asked, name, wrong, takers):
    with pytest.raises(Refusal, match=f"--{next(iter(wrong))} is for {takers} only, got it for {name}"):
        asked(name, lengths=wrong)


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_answers_are_made_in_what_torch_is_fast_in_unless_a_dtype_is_named(dtype, folder, tmp_path, monkeypatch):
    """Many answers at a time attend by torch's products, which emulate bfloat16 on some processors."""
    def making(lm, *told, **more):
        raise Seen(lm)

    monkeypatch.setattr(train, "torchs_dtype", lambda device: torch.float32)
    monkeypatch.setattr(train, "make_answers", making)
    with pytest.raises(Seen) as caught:
        train.answer_prompts([], [], tmp_path, 10, 1.0, 0.5, None, 8, None, str(folder), "cpu", dtype, 1, 0,
                             lambda line: None, lambda done, total, what: None)
    assert caught.value.args[0].dtype == (torch.float32 if dtype == "auto" else torch.bfloat16)


@pytest.mark.parametrize("text", ["", "0.7,warm", "0,-1", "inf", "nan"])
def test_temperatures_are_finite_and_not_below_zero(text):
    assert train.temperature_mix("0,0.5,1") == (0, 0.5, 1)
    with pytest.raises(Refusal, match="--temperatures are numbers of 0 or more"):
        train.temperature_mix(text)


def test_other_depth_weights_have_their_own_smoothing_and_causal_attention_is_the_usual_one():
    aligned = recipe("diffusion-lm-aligned")
    assert train.objective(aligned, None, "dpace", None, None).smooth is None
    assert train.objective(aligned, None, None, None, None) == aligned.objective
    assert train.with_attention("diffusion-lm", "causal") == "diffusion-lm"


def test_a_head_that_is_unrolled_for_no_step_is_refused():
    with pytest.raises(Refusal, match="at least 1 and of eagle alone, got 0 for eagle"):
        train.unrolled(recipe("eagle"), "eagle", 0)
