"""Counts of teacher-forced walks."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.training.eval.teacher_forced import Tally, matches, sum_tallies, tallies, walk_answer
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.recipes import start
from tests.training.lessons import IDS, answered, batch_of, drafters, learned, logits, ready
from tests.training.tiny import tiny_examples, tiny_target

ALL = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def data(target):
    return answered(target, tiny_examples(4), 12)


def table(*rows: str) -> torch.Tensor:
    """[depth, S] from one word a depth: x is right, . is wrong."""
    return torch.tensor([[letter == "x" for letter in row] for row in rows])


def test_a_walk_over_hand_made_matches_is_counted_by_hand():
    right = table(".x..xx.",
                  ".x..x..")
    # anchor 1: two right, and one from the target: at 4; there one draft has room, right: at 6, where all is said
    assert walk_answer(right, 2, 7) == Tally(tokens=5, rounds=2, reached=[2, 1], accepted=[2, 1])


def test_a_wrong_slot_ends_a_round_and_hides_what_is_right_behind_it():
    right = table(".......",
                  "xxxxxxx")
    # anchors 1, 2, 3, 4 draft and fail at once; at 5 there is no room for a draft beside the target's own token
    assert walk_answer(right, 2, 7) == Tally(tokens=5, rounds=5, reached=[4, 0], accepted=[0, 0])


def test_a_walk_never_drafts_past_the_end():
    right = torch.ones(5, 8, dtype=torch.bool)
    assert walk_answer(right, 1, 4) == Tally(tokens=3, rounds=1, reached=[1, 1], accepted=[1, 1])
    assert walk_answer(right, 3, 4) == Tally(tokens=1, rounds=1)
    assert walk_answer(right, 1, 8) == Tally(tokens=7, rounds=2, reached=[1, 1, 1, 1, 1], accepted=[1, 1, 1, 1, 1])


def test_every_token_of_the_answer_is_counted_once_whatever_is_right():
    dice = torch.Generator().manual_seed(0)
    for first, stop in ((1, 2), (1, 20), (7, 30), (3, 9)):
        right = torch.rand(4, 30, generator=dice) < 0.6
        tally = walk_answer(right, first, stop)
        assert tally.tokens == stop - first == tally.rounds + sum(tally.accepted)


def test_tallies_add_up_whatever_depth_they_reached():
    one, two = Tally(5, 2, [2, 1], [2, 1]), Tally(3, 3, [2], [0])
    assert one.plus(two) == Tally(8, 5, [4, 1], [2, 1]) == two.plus(one)
    assert one.plus(Tally()) == one
    assert sum_tallies({"a": one, "b": two}) == one.plus(two)
    assert (one, two) == (Tally(5, 2, [2, 1], [2, 1]), Tally(3, 3, [2], [0]))


def test_acceptance_at_a_depth_is_among_the_drafts_that_reached_it():
    assert Tally(8, 5, [4, 2, 0], [2, 1, 0]).told() == {
        "tokens_per_target_forward": 1.6, "conditional_acceptance": [0.5, 0.5, None], "tokens": 8, "rounds": 5}
    assert Tally().told()["tokens_per_target_forward"] is None


def test_the_target_itself_as_drafter_is_right_wherever_its_token_is_in_the_vocabulary(target, data):
    batch = batch_of(target, data)
    right, = matches(DraftLMNet(target, IDS, ALL), batch, 3)
    for i, example in enumerate(data):
        for t in range(len(example.prompt) - 1, len(example) - 1):
            for k in range(min(3, len(example) - 1 - t)):
                assert bool(right[k, i, t]) == (example.tokens[t + 1 + k] in IDS.tolist())


@pytest.mark.parametrize("name", ["eagle", "draft-lm", "early-exit"])
def test_a_slot_is_right_where_its_best_token_is_the_one_the_target_said(target, data, name):
    batch = batch_of(target, data, (1, 2, 3))
    drafter = learned(drafters(target)[name], batch, 20)
    slots = logits(drafter, batch)
    found = matches(drafter, batch, 3)
    assert len(found) == (1 if drafter.unrolled else len(slots))
    hits = 0
    for e, right in enumerate(found):
        for i, example in enumerate(data):
            for t in range(len(example.prompt) - 1, len(example) - 3):
                for k in range(3):
                    row = slots[k][i, t] if drafter.unrolled else slots[e][i, t + k]
                    said = int(IDS[row.argmax()]) == example.tokens[t + 1 + k]
                    assert bool(right[k, i, t]) == said
                    hits += said
    assert hits


def test_an_unrolled_drafter_is_measured_as_deep_as_was_asked(target, data):
    drafter = drafters(target)["eagle"]
    batch = batch_of(target, data, drafter.levels)
    assert drafter.depth == 3
    assert [matches(drafter, batch, depth)[0].shape[0] for depth in (2, 5)] == [2, 5]


def test_families_are_counted_apart_and_drafters_beside_each_other(target, data):
    mixed = [replace(example, source=source) for example, source in zip(data, "abab", strict=True)]
    drafter = drafters(target)["early-exit"]
    batch = batch_of(target, mixed, drafter.levels)
    found = tallies(drafter, [(batch, ["a", "b", "a", "b"])], 3)
    assert len(found) == 2
    assert all(set(one) == {"a", "b"} for one in found)
    for one, right in zip(found, matches(drafter, batch, 3), strict=True):
        by_hand = [walk_answer(right[:, i], len(e.prompt), len(e)) for i, e in enumerate(mixed)]
        assert one["a"] == by_hand[0].plus(by_hand[2])
        assert one["b"] == by_hand[1].plus(by_hand[3])


def everywhere(drafter, batch, depth: int) -> torch.Tensor:
    """The matches of an unrolled drafter with every slot of every row made and read, whatever it is about."""
    with torch.no_grad():
        slots = drafter.slots(batch, depth)
        right = []
        for k, x in enumerate(slots):
            dist, x = drafter.frozen.distribution(batch, k), x.flatten(0, 1)
            column = (drafter.proposed(x, batch.later(batch.tokens, k).flatten()) if hasattr(drafter, "proposed")
                      else (x @ drafter.frozen.rows.T).argmax(-1))
            right.append(((column == dist.columns[:, 0]) & dist.covered).view(batch.tokens.shape))
    return torch.stack(right)


@pytest.mark.parametrize("name", ["eagle", "diffusion-lm", "block-diffusion"])
def test_slots_inside_answers_alone_give_the_tallies_of_slots_everywhere(target, name, monkeypatch):
    monkeypatch.setattr("specdec_lib.training.nets.diffusion_lm.TOGETHER", 5)
    monkeypatch.setattr("specdec_lib.training.nets.block_diffusion.AT_ONCE", 3)
    data = answered(target, tiny_examples(5, prompt=(2, 14)), 16)
    drafter = (drafters(target)["eagle"] if name == "eagle" else
               start(ready(name, target), target, SimpleNamespace(ids=IDS)))
    batch = batch_of(target, data, drafter.levels)
    learned(drafter, batch, 20)
    found, = tallies(drafter, [(batch, list("ababa"))], 3)
    right = everywhere(drafter, batch, 3)
    walks = [walk_answer(right[:, i], len(example.prompt), len(example)) for i, example in enumerate(data)]
    assert found == {"a": walks[0].plus(walks[2]).plus(walks[4]), "b": walks[1].plus(walks[3])}
    assert sum_tallies(found).accepted[1] > 0
    assert torch.equal(matches(drafter, batch, 3)[0], right & batch.drafted(1))


@pytest.mark.parametrize(("name", "made", "anchors"), [("diffusion-lm", "behind", 1), ("block-diffusion", "blocks", 1)])
def test_a_block_drafter_makes_no_block_outside_of_an_answer(target, name, made, anchors, monkeypatch):
    drafter, rows = start(ready(name, target), target, SimpleNamespace(ids=IDS)), []
    batch = batch_of(target, tiny_examples(4, prompt=(2, 30)), drafter.levels)
    real = getattr(drafter, made)

    def counted(*given):
        places = given[anchors]
        rows.extend((getattr(places, "anchors", places)).flatten().tolist())
        return real(*given)

    monkeypatch.setattr(drafter, made, counted)
    matches(drafter, batch, 3)
    longest = int(batch.drafted(1).sum(1).max())
    assert int(batch.drafted(1).sum()) <= len(rows) <= 4 * longest < batch.tokens.numel()
