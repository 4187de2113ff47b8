"""What a teacher-forced walk predicts is what the loop does."""

import pytest
import torch

from specdec_lib.cards import TokenizerFacts
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.training.data.examples import Example
from specdec_lib.training.eval.decoding import decode_live, evenly
from specdec_lib.training.eval.teacher_forced import Tally, sum_tallies, tallies
from tests.training.lessons import answered, batch_of, checkpoint, drafters, learned, stirred
from tests.training.tiny import tiny_examples, tiny_target

LEVELS, DEPTH = (1, 2, 3), 4
PARTS = [("eagle", None), ("draft-lm", None), ("early-exit", 1), ("early-exit", 3)]


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def data(target):
    return answered(target, tiny_examples(4, prompt=(2, 9)), 30)


def in_the_loop(name, layer, drafter, target, data, end=frozenset()):
    """The tally of the real loop for what this drafter becomes when it is stored."""
    stored = checkpoint(name, drafter)
    if name == "draft-lm":
        return decode_live(f"draft-model(depth={DEPTH})", target, TokenizerFacts(end=end), data,
                           draft=draft_lm(stored.state, target.weights))
    spec = f"{name}(depth={DEPTH}{f', layer={layer}' if layer else ''})"
    return decode_live(spec, target, TokenizerFacts(end=end), data, {name: stored})


@pytest.mark.parametrize("taught", [False, True], ids=["random", "taught"])
@pytest.mark.parametrize(("name", "layer"), PARTS)
def test_a_walk_counts_the_rounds_of_the_loop(target, data, name, layer, taught):
    batch, drafter = batch_of(target, data, LEVELS), drafters(target)[name]
    drafter = learned(drafter, batch, 25) if taught else stirred(drafter)
    found = tallies(drafter, [(batch, ["tiny"] * len(data))], DEPTH)
    expected = found[0 if layer is None else (1, 3).index(layer)]
    assert in_the_loop(name, layer, drafter, target, data) == expected
    assert sum_tallies(expected).tokens == sum(len(example.output) for example in data)
    if taught:
        assert expected["tiny"].accepted[0] > 5
        assert expected["tiny"].accepted[1] > 0


@pytest.mark.parametrize(("name", "layer"), PARTS)
def test_walk_and_loop_agree_where_answers_end_early(target, name, layer):
    end = frozenset({19, 35})
    data = answered(target, tiny_examples(8, seed=4), 30, end)
    assert any(len(example.output) < 30 and example.output[-1] in end for example in data)
    batch = batch_of(target, data, LEVELS)
    drafter = learned(drafters(target)[name], batch, 25)
    found = tallies(drafter, [(batch, ["tiny"] * len(data))], DEPTH)
    assert in_the_loop(name, layer, drafter, target, data, end) == found[0 if layer is None else (1, 3).index(layer)]


def test_walk_and_loop_agree_where_tokens_of_the_text_are_drafted():
    target = tiny_target(tied=True)                # so that every output row lies open
    data = answered(target, tiny_examples(6, seed=1), 30)
    batch = batch_of(target, data, LEVELS)
    drafter = learned(drafters(target, torch.arange(0, 40, 4))["eagle"], batch, 25)
    found, = tallies(drafter, [(batch, ["tiny"] * len(data))], DEPTH)
    assert in_the_loop("eagle", None, drafter, target, data) == found
    drafter.text_tokens = False
    without, = tallies(drafter, [(batch, ["tiny"] * len(data))], DEPTH)
    assert without["tiny"].rounds > found["tiny"].rounds


def test_a_perfect_draft_model_is_counted_as_such(target, data):
    found = decode_live(f"draft-model(depth={DEPTH})", target, TokenizerFacts(), data, draft=target.fresh())
    assert found["tiny"] == Tally(120, 24, [24, 24, 24, 24], [24, 24, 24, 24])


def test_an_answer_that_ends_inside_a_draft_is_counted_to_its_end(target):
    said, = answered(target, tiny_examples(1), 12)
    end = frozenset(said.output[3:])               # the first of these ends it
    stop = next(i for i, token in enumerate(said.output, 1) if token in end)
    found = decode_live(f"draft-model(depth={DEPTH + 8})", target, TokenizerFacts(end=end), [said],
                        draft=target.fresh())["tiny"]
    assert (found.tokens, found.rounds) == (stop, 1)
    assert sum(found.accepted) == stop < 12


def test_families_are_told_apart(target):
    data = [Example((1, 2), (3,) * 4, "a"), Example((2, 3), (3,) * 6, "b"), Example((3, 4), (3,) * 5, "a")]
    found = decode_live("ar", target, TokenizerFacts(), data)
    assert {family: tally.tokens for family, tally in found.items()} == {"a": 9, "b": 6}
    assert found["a"].rounds == 9
    assert found["a"].reached == []


def test_a_sample_is_spread_over_the_families_and_repeats():
    data = [Example((place,), (2, 3), family) for place, family in enumerate("aabbbbcccc")]
    chosen = evenly(data, [(9, 8, 0), (1, 2, 3), (4, 5, 6, 7)], 5)
    assert [example.source for example in chosen] == ["a", "b", "b", "c", "c"]
    assert len(set(chosen)) == 5
    assert chosen == evenly(data, [(9, 8, 0), (1, 2, 3), (4, 5, 6, 7)], 5)


def test_of_few_prompts_each_is_sampled_once():
    data = [Example((place,), (2, 3), "a") for place in range(3)]
    assert evenly(data, [(2, 0), (1,)], 24) == data
    assert evenly(data, [], 24) == []
