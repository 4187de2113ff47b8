"""A dataset from records: split by prompt, grouped, with a vocabulary and features that all drafters share."""

from itertools import count, islice

import pytest
import torch

from specdec_lib.training.data import dataset
from specdec_lib.training.data.dataset import batches_of, make_dataset
from specdec_lib.training.data.examples import is_held_out
from specdec_lib.types import Refusal
from tests.training.babble import END, VOCAB, Babble
from tests.training.tiny import tiny_examples, tiny_target

PROMPTS = [f"w4 w{i} w{j}" for i in range(4, 32) for j in range(4, 10)]
HELD = [text for text in PROMPTS if is_held_out(text)][:4]
TRAIN = [text for text in PROMPTS if not is_held_out(text)][:12]


def answer(prompt: str, words: tuple[int, ...], temperature: float = 0.0, source: str = "self") -> dict:
    return {"source": source, "temperature": temperature, "prompt": prompt, "output": [*words, END]}


def records() -> list[dict]:
    """Greedy and sampled answers; held-out ones alone say word 30."""
    return [answer(text, (10 + i % 3, 12, 14 + i % 2), 0.0, "self") for i, text in enumerate(TRAIN)] + [
        answer(text, (20, 21, 22), 0.6, "chat") for text in TRAIN[:4]] + [
        answer(text, (30, 12), 0.0, "chat") for text in HELD] + [
        answer(text, (30, 13), 0.6, "self") for text in HELD]


@pytest.fixture(scope="module")
def target():
    return tiny_target(vocab=VOCAB, layers=6)


def make(target, said=None, **options):
    return make_dataset(target, Babble(), records() if said is None else said, None, batch=24, **options)


def test_prompts_are_either_trained_on_or_measured_with(target):
    made = make(target)
    train = {made.data[i].prompt for group in made.train for i in group}
    held = {made.data[i].prompt for group in made.held for i in group}
    assert len(train) == 12
    assert len(held) == 4
    assert not train & held


def test_training_takes_every_answer_of_its_prompts_and_measuring_the_greedy_ones(target):
    made = make(target)
    train = [made.data[i] for group in made.train for i in group]
    assert sorted(one.temperature for one in train) == [0.0] * 12 + [0.6] * 4
    assert all(made.data[i].temperature == 0 for group in made.held for i in group)
    assert made.tokens == sum(len(one) for one in train)


def test_held_out_answers_do_not_affect_the_vocabulary(target):
    ids = make(target).ids
    assert ids.dtype == torch.int64
    assert ids.tolist() == [END, 10, 11, 12, 14, 15, 20, 21, 22]


def test_a_cut_vocabulary_still_has_the_token_that_ends_an_answer(target):
    rare = [one | {"output": [12, 12, 14, 14, 10, 11]} for one in records()]
    rare[0]["output"] = [12, 14, END]
    assert make(target, rare, rows=3).ids.tolist() == [END, 12, 14]


def test_prompts_are_learned_on_request_from_where_they_differ_and_measuring_stays_as_it_is(target):
    plain, made = make(target), make(target, learn_prompts=True)
    begun = Babble().encode_chat([""])[:1]         # what the template says first: every prompt has w4 behind it
    for i, example in enumerate(plain.data):
        assert made.data[i].tokens == example.tokens
        assert made.data[i].prompt == (example.prompt if example.held_out else example.prompt[:len(begun) + 1])
    assert torch.equal(made.ids, plain.ids)
    assert made.held == plain.held
    (batch, _), = made.batches(made.train[:1], (1,))
    assert bool((batch.top_logp[:, batch.start[0] - 1:int(batch.stop.min())] < 0).all())


def test_of_watched_answers_the_greedy_ones_are_measured(target):
    made = make(target, watched=[answer(TRAIN[0], (20, 21), 0.6), answer(TRAIN[0], (22, 23))])
    assert [made.data[i].output for group in made.watched for i in group] == [(22, 23, END)]


def test_watched_answers_that_do_not_fit_are_told_of(target):
    said = []
    made = make(target, watched=[answer(TRAIN[0] * 400, (22, 23))], say=said.append)
    assert not made.watched
    assert any("none of the answers to watch is measured" in line for line in said)


def test_prompts_that_leave_no_room_for_an_answer_are_counted(target, monkeypatch):
    room, said = len(Babble().encode_chat([TRAIN[0]])) + 2, []
    monkeypatch.setattr(dataset, "LONGEST", room)
    long = [answer(f"{TRAIN[0]} w{i}", (10, 12)) for i in (4, 5)]
    make(target, [*records(), *long], say=said.append)
    assert said[0].endswith(f", 2 with prompts of {room - 1} or more tokens left out")
    with pytest.raises(Refusal, match=f"measure with, 2 with prompts of {room - 1} or more tokens left out: more data"):
        make(target, long)


def test_forbidden_prompts_are_in_neither_part(target):
    made = make(target, forbidden=frozenset([TRAIN[0], HELD[0]]))
    banned = {Babble().encode_chat([text]) for text in (TRAIN[0], HELD[0])}
    assert len({one.prompt for one in made.data}) == 14
    assert not banned & {one.prompt for one in made.data}


def test_answers_are_cut_to_the_targets_context():
    short = tiny_target(vocab=VOCAB, context=8)
    assert max(len(one) for one in make(short).data) == 8


def test_features_hold_the_hidden_states_that_drafters_read_by_default(target):
    assert make(target).features.levels == (1, 2, 3)


@pytest.mark.parametrize("kept", ["train", "held", "sampled", "none"])
def test_a_dataset_without_both_parts_is_refused_with_a_remedy(target, kept):
    said = {"train": lambda one: one["prompt"] in TRAIN, "held": lambda one: one["prompt"] in HELD,
            "sampled": lambda one: one["prompt"] in TRAIN or one["temperature"] > 0, "none": lambda one: False}[kept]
    with pytest.raises(Refusal, match="more --minutes or more --prompts"):
        make(target, list(filter(said, records())))


def test_answers_of_one_token_alone_are_refused(target):
    with pytest.raises(Refusal, match="one token alone"):
        make(target, [{**one, "output": [END] * 9} for one in records()])


def test_held_out_batches_come_with_the_family_of_each_answer(target):
    made = make(target)
    told = list(made.held_out((1, 3)))
    assert [len(families) for _, families in told] == [len(group) for group in made.held]
    assert {family for _, families in told for family in families} == {"chat"}
    assert all(set(batch.streams) == {1, 3} and len(batch.tokens) == len(families) for batch, families in told)
    assert len(list(made.held_out((1,), 1))) == 1 < len(made.held)


def test_the_same_records_make_the_same_dataset(target):
    one, other = make(target), make(target)
    assert (one.data, one.train, one.held) == (other.data, other.train, other.held)
    assert torch.equal(one.ids, other.ids)


def test_records_are_read_once_and_may_be_a_stream(target):
    made = make_dataset(target, Babble(), iter(records()), None, batch=24)
    assert len(made.data) == len(records())


def test_a_dataset_reports_its_sizes(target):
    said = []
    made = make(target, say=said.append)
    assert said == [f"16 examples with {made.tokens} tokens to train on, 4 held out, 9 tokens in the draft vocabulary"]


def test_groups_among_chosen_examples_name_them_by_their_place_in_all_of_them():
    data = tiny_examples(10)
    chosen = list(islice(count(1, 2), 5))
    groups = batches_of(data, chosen, 24)
    assert sorted(i for group in groups for i in group) == chosen
    assert all(len(group) * max(len(data[i]) for i in group) <= 24 for group in groups)
