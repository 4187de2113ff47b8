"""`specdec train ngram` counts the training answers, and its card has the rates of the counts."""

import pytest
import torch

from specdec_lib.checkpoints.checkpoint_files import CheckpointFolder, checked_weights
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.ngram import NAMES, Ngram
from specdec_lib.training.data import ngram_counts
from specdec_lib.training.eval.teacher_forced import walk_answer
from specdec_lib.training.pipeline import TrainingOrder, prepare_dataset
from specdec_lib.training.recipes import DEPTH
from specdec_lib.training.time_budget import TimeBudget
from specdec_lib.training.train_ngram import ngram_tallies, train_ngram
from tests.training.folder import answers_file, model_folder


def quiet(*_):
    """Nobody listens."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(target, text, order, what was counted)."""
    torch.set_num_threads(1)
    folder = model_folder(tmp_path_factory.mktemp("models") / "tiny")
    target, text = Transformer.load(folder), Tokenizer(folder)
    out = tmp_path_factory.mktemp("out")
    order = TrainingOrder(out, 9, data=(answers_file(folder, out / "answers.jsonl"),), target="tiny")
    return target, text, order, train_ngram(order, target, text, {"commit": "abc"}, quiet, quiet)


@pytest.fixture(scope="module")
def lessons(world):
    target, text, order, _ = world
    return prepare_dataset(order, target, text, TimeBudget(1), quiet, quiet)


def test_it_holds_the_counts_of_the_answers_and_of_no_held_out_one(world, lessons):
    target, _, order, _ = world
    kept = Ngram.load(order.out / "ngram" / "model.safetensors")
    learned = [lessons.data[i].output for group in lessons.train for i in group]
    mine, every = (Ngram(ngram_counts.count_ngrams(said, target.vocab))
                   for said in (learned, [one.output for one in lessons.data]))
    rows = [[model.row(one.output[:2]).tolist() for one in lessons.data] for model in (kept, mine, every)]
    assert rows[0] == rows[1] != rows[2]


def test_its_card_has_the_rates_of_the_loop_on_held_out_answers(world):
    card = world[3].card
    forced, live = card["measured"]["teacher-forced"]["ngram"], dict(card["measured"]["live"]["ngram"])
    assert live.pop("prompts") > 5
    assert live == {key: value for key, value in forced.items() if key != "by_family"}
    assert set(forced["by_family"]) == {"even", "odd"}
    assert forced["conditional_acceptance"][0] > 0


def test_its_card_tells_how_it_was_made(world, lessons):
    target, _, order, done = world
    learned = [lessons.data[i] for group in lessons.train for i in group]
    assert done.card["made"]["tokens_seen"] == sum(len(example.output) for example in learned)
    assert done.card["made"]["commit"] == "abc"
    assert done.card["made"]["data"] == "even, odd"
    model = Ngram.load(order.out / "ngram" / "model.safetensors")
    stored = [model.unigram, *(getattr(part, name) for part in (model.bigram, model.trigram)
                               for name in ("tokens", "mass")), model.bigram.start[:-1], model.trigram.start[:-1]]
    assert done.card["parameters"] == sum(map(len, stored))
    assert len(NAMES) == 7
    assert (order.out / "ngram" / "README.md").read_text().startswith("# ngram")


def test_it_loads_for_any_target_with_its_tokenizer(world):
    target, text, order, _ = world
    shelf = CheckpointFolder(order.out, target, text, "tiny", readers={"ngram": Ngram.load})
    assert "ngram" in shelf
    assert isinstance(shelf["ngram"], Ngram)
    assert checked_weights(order.out, "ngram").is_file()


def test_rounds_are_counted_with_the_best_token_after_every_two(lessons):
    class Fixed:
        """Says that a token follows itself."""

        def best(self, tokens):
            return tokens[-1]

    by_hand = {}
    for group in lessons.held:
        for i in group:
            tokens, start = lessons.data[i].tokens, len(lessons.data[i].prompt)
            same = [a == b for a, b in zip(tokens, tokens[1:], strict=False)] + [False] * (DEPTH + 1)
            right = torch.tensor([same[k:k + len(tokens)] for k in range(DEPTH)])
            tally, family = walk_answer(right, start, len(tokens)), lessons.data[i].source
            by_hand[family] = by_hand[family].plus(tally) if family in by_hand else tally
    assert ngram_tallies(lessons.held_out(()), Fixed()) == by_hand
    assert sum(tally.accepted[0] for tally in by_hand.values()) > 0
