"""Training the verifier and its drafter on a toy dictionary: resumable, stored, read again, refused without data."""

import json
import shutil
from dataclasses import replace
from random import Random

import pytest
import torch

from specdec_lib.checkpoints.checkpoint_files import load_checkpoint
from specdec_lib.seq2seq import dictionary as words
from specdec_lib.seq2seq.network import EncoderDecoder
from specdec_lib.seq2seq.search import greedy
from specdec_lib.seq2seq.stored import load_verifier
from specdec_lib.training import train_g2p, train_g2p_drafter
from specdec_lib.training.data.spellings import SpellingBatches, pairs_of, some_words
from specdec_lib.training.fit import KEPT_LOG, Settings, read_log
from specdec_lib.training.fit_g2p import fit_spellings, verifier_loss
from specdec_lib.training.pipeline import TrainingOrder
from specdec_lib.types import Refusal
from tests.seq2seq.worlds import SIZES, dictionary

MADE = {"command": "specdec train g2p", "commit": "abc", "date": "2026-01-01", "machine": "a machine"}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return dictionary(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def shelf(toy, tmp_path_factory):
    """Both checkpoints, after a few steps each."""
    out, steps = tmp_path_factory.mktemp("shelf"), pytest.MonkeyPatch()
    steps.setattr(train_g2p, "settings_of", lambda order: Settings(steps=40, rate=2e-2))
    steps.setattr(train_g2p_drafter, "settings_of", lambda order: Settings(steps=6, rate=1e-2))
    steps.setattr(train_g2p, "HELD_SENTENCES", 3)
    steps.setattr(train_g2p_drafter, "MEASURED", (2, 1))
    torch.set_num_threads(1)
    order = TrainingOrder(out, 1.0, batch=16)
    train_g2p.train_verifier(order, MADE, lambda line: None, lambda done, total, what: None, SIZES, toy)
    train_g2p_drafter.train_g2p_drafter(order, MADE, lambda line: None, lambda done, total, what: None, toy)
    steps.undo()
    return out


def few(net, toy, folder, steps: int, **more):
    train, _ = words.split(words.read_dictionary(toy))
    batches = SpellingBatches(pairs_of(train), 0, 16, 4)
    return fit_spellings(net, batches, verifier_loss(net), Settings(steps=steps, save_every=0.0), folder, **more)


def fresh() -> EncoderDecoder:
    torch.manual_seed(0)
    return EncoderDecoder(SIZES)


def test_a_killed_fit_resumes_and_takes_the_same_steps(toy, tmp_path):
    class Killed(Exception):
        pass

    def kill(now, done, line):
        if now.step == 2:
            raise Killed

    whole, cut, again = fresh(), fresh(), fresh()
    few(whole, toy, tmp_path / "whole", 4)
    with pytest.raises(Killed):
        few(cut, toy, tmp_path / "cut", 4, progress=kill)
    few(again, toy, tmp_path / "cut", 4)
    for name, tensor in whole.named_parameters():
        assert torch.equal(dict(again.named_parameters())[name], tensor), name
    assert [line["step"] for line in read_log(tmp_path / "cut" / "log.jsonl")] == list(range(1, 5))


def test_an_epoch_takes_every_word_once_and_batches_are_of_similar_length(toy):
    pairs = pairs_of(words.read_dictionary(toy))[:96]
    batches = SpellingBatches(pairs, 1, 8, 2)
    texts = [text for number in range(12) for text, _ in batches.word_pairs(number)]
    assert sorted(texts) == sorted(word for word, _ in pairs)
    assert texts != [text for number in range(12, 24) for text, _ in batches.word_pairs(number)]
    assert batches(7).targets.tolist() == SpellingBatches(pairs, 1, 8, 2)(7).targets.tolist()


def test_words_are_added_to_a_sentence_up_to_exactly_its_limit():
    pairs = [("eight", (4, 5)), ("a", (6,))]
    sizes = [sum(len(spoken) + 1 for _, spoken in some_words(pairs, 9, Random(seed))) for seed in range(40)]
    assert set(sizes) == {7, 8, 9}
    assert len(list(some_words(pairs, 1, Random(0)))) == 1


def test_both_checkpoints_hold_weights_a_card_and_a_log_and_are_read_as_they_were_measured(shelf):
    for name in ("g2p", "g2p-drafter"):
        assert {path.name for path in (shelf / name).iterdir()} == {"model.safetensors", "card.json", "README.md",
                                                                    KEPT_LOG}
    card = json.loads((shelf / "g2p" / "card.json").read_text())
    net, _ = load_verifier(shelf)
    measured = card["measured"]["greedy on held-out"]
    assert set(measured) == {"words", "sentences"}
    assert 0 < measured["words"]["phoneme_error_rate"] <= 3
    assert len(list(greedy(net, [words.source_ids("bad")], 8))) == 1
    log = [line["loss"] for line in read_log(shelf / "g2p" / KEPT_LOG) if "loss" in line]
    assert sum(log[-8:]) < sum(log[:8]), "it learns"


def test_a_drafter_names_its_verifier_and_tells_tokens_per_forward_by_block(shelf):
    stored = load_checkpoint(shelf, "g2p-drafter")
    assert stored.meta["verifier"] == stored.card["made"]["verifier"] == load_checkpoint(shelf, "g2p").card["sha256"]
    assert not any(name.startswith("encoder") for name in stored.state)
    told = stored.card["measured"]["tokens per forward on held-out"]
    assert all(value >= 1 for by in told.values() for value in by.values())
    assert list(told["words"]) == ["k = 5", "k = 10", "k = 25"]


def test_a_drafter_that_was_fitted_for_another_verifier_is_refused(shelf, toy, tmp_path, monkeypatch):
    """Its folder would give the finished fit of the old verifier the new one's name."""
    shutil.copytree(shelf, tmp_path / "out")
    monkeypatch.setattr(train_g2p_drafter, "load_verifier", lambda place: renamed(load_verifier(place)))
    monkeypatch.setattr(train_g2p_drafter, "settings_of", lambda order: Settings(steps=6, rate=1e-2))
    order = TrainingOrder(tmp_path / "out", 1.0, batch=16)
    with pytest.raises(Refusal, match="begun with another recipe, verifier "):
        train_g2p_drafter.train_g2p_drafter(order, MADE, lambda line: None, lambda done, total, what: None, toy)


@pytest.mark.parametrize(("batch", "dtype", "named"), [(8, None, r"words of a step \(16 there, 8 here\)"),
                                                       (16, "bfloat16", r"dtype \(None there, bfloat16 here\)")])
def test_a_verifier_is_not_fitted_on_with_another_batch_or_dtype(
        shelf, toy, tmp_path, monkeypatch, batch, dtype, named):
    shutil.copytree(shelf, tmp_path / "out")
    monkeypatch.setattr(train_g2p, "settings_of", lambda order: Settings(steps=40, rate=2e-2))
    with pytest.raises(Refusal, match=f"begun with another recipe, {named}"):
        train_g2p.train_verifier(TrainingOrder(tmp_path / "out", 1.0, batch=batch), MADE | {"dtype": dtype},
                                 lambda line: None, lambda done, total, what: None, SIZES, toy)


def renamed(verifier):
    net, stored = verifier
    return net, replace(stored, card={**stored.card, "sha256": "0" * 64})


def test_without_a_dictionary_or_with_too_small_a_one_it_is_refused(tmp_path):
    tiny = tmp_path / "tiny.dict"
    tiny.write_text("cat K AE1 T\n")
    with pytest.raises(Refusal, match="too small to be split"):
        train_g2p.training_words(tiny)
    with pytest.raises(Refusal, match="cannot be read"):
        train_g2p.training_words(tmp_path / "none.dict")
