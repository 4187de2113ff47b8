"""Labels of length predictors: the tokens that the target accepts, computed by hand and compared with the loop."""

from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.loop import begin, step
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.data.features import Features
from specdec_lib.training.data.length_labels import (
    DRAFTERS,
    UNKNOWN,
    join_labels,
    kept_lengths,
    labelled_positions,
    ready_drafter,
)
from specdec_lib.training.recipes import RECIPES
from specdec_lib.types import Refusal
from tests.training.lessons import answered, checkpoint, drafters, stirred
from tests.training.tiny import tiny_examples, tiny_target

NO, YES = False, True


def batch(tokens, start, best):
    """One text; `best[t]` is the target's token after row t."""
    return Batch(torch.tensor([tokens]), torch.tensor([start]), torch.tensor([len(tokens)]), {},
                 torch.tensor(best)[None, :, None], torch.zeros(1, len(tokens), 1))


def slots(*rows):
    """Slot 0, 1, ... at every row."""
    return torch.tensor(rows)[:, None]


GREEDY = batch([9, 1, 2, 3, 4, 5], 2, [0, 2, 3, 4, 5, 0])            # answers 2 3 4 5 to the prompt 9 1


def test_a_label_counts_the_right_slots_before_the_first_wrong_one():
    right = slots([NO, YES, YES, NO, YES, NO], [NO, YES, NO, YES, NO, NO], [NO, NO, YES, NO, NO, NO])
    assert kept_lengths(right, GREEDY)[0, 1:4].tolist() == [2, 1, 0]


def test_a_label_is_no_longer_than_the_longest_draft():
    assert kept_lengths(slots([NO, YES, YES, NO, NO, NO]), GREEDY)[0, 1:4].tolist() == [1, 1, 0]


def test_a_streak_into_the_end_of_a_cut_answer_has_no_label_and_one_into_an_end_token_has():
    every = slots(*[[YES] * 6] * 4)
    assert kept_lengths(every, GREEDY)[0, 1:5].tolist() == [4, UNKNOWN, UNKNOWN, UNKNOWN]
    assert kept_lengths(every, GREEDY, frozenset({5}))[0, 1:5].tolist() == [4, 3, 2, 1]


def test_where_the_text_leaves_the_greedy_one_a_longer_streak_has_no_label():
    text = batch([9, 1, 2, 3, 7, 5, 6], 2, [0, 2, 3, 4, 5, 6, 0])    # 7 stands where the target says 4
    right = slots([NO, YES, YES, YES, YES, NO, NO], [NO, YES, YES, YES, NO, NO, NO], [NO, YES, NO, NO, NO, NO, NO])
    found = kept_lengths(right, text)[0, 1:4].tolist()
    assert found == [3, UNKNOWN, UNKNOWN]           # three were asked for and kept; two kept, then another text; one
    wrong = slots([NO, NO, YES, NO, NO, NO, NO], [NO, NO, NO, NO, NO, NO, NO], [NO] * 7)
    assert kept_lengths(wrong, text)[0, 1:4].tolist() == [0, 1, 0]


@pytest.fixture(scope="module")
def world():
    """(target, greedy answers, drafters)."""
    target = tiny_target()
    return target, answered(target, tiny_examples(5), 12, frozenset()), {
        name: stirred(one) for name, one in drafters(target, random=False).items()}


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_label_is_what_the_loop_keeps_of_a_draft_at_that_place(world, name):
    target, data, all_drafters = world
    stored = checkpoint(name, all_drafters[name])
    drafter = ready_drafter(name, stored, target)
    levels = sorted({target.layers, *drafter.levels})
    found = labelled_positions(target, Features(target, data, levels, None)(range(len(data)), levels), {"one": drafter},
                               4)
    at, seen = 0, set()
    for example in data:
        for length in range(len(example.prompt), len(example)):
            kept, label = in_the_loop(name, stored, target, example.tokens[:length]), int(found.labels["one"][at])
            assert int(found.tokens[at]) == example.tokens[length - 1]
            assert label in (UNKNOWN, kept)
            seen.add(label)
            at += 1
    assert at == len(found)
    assert {0, 1} <= seen
    assert int((found.labels["one"] == UNKNOWN).sum()) < at / 2


def in_the_loop(name, stored, target, tokens):
    """Tokens kept of a draft of four, of all that the target would go on with."""
    lm, draft = target.fresh(), None
    if name == "draft-lm":
        from specdec_lib.heads.draft_lm import draft_lm
        draft = draft_lm(stored.state, target.weights)
    kit = Kit(lm, TokenizerFacts(vocab=target.vocab), draft=draft, checkpoints={name: stored}, parts=catalog.make_part)
    method = catalog.build(f"{RECIPES[name].method or name}(depth=4)", kit)
    lm.prefill(tokens[:-1])
    return len(step(begin(tokens, 20), lm, method).rounds[-1].verdict.path)


def test_a_state_is_the_last_normed_one_of_the_row_before(world):
    target, data, all_drafters = world
    batch = Features(target, data, (1, 2, 3, 4), None)(range(len(data)), (1, 2, 3, 4))
    found, at = labelled_positions(target, batch, {"one": all_drafters["eagle"]}, 2), 0
    for example in data:
        lm = target.fresh()
        lm.tap((target.layers,))
        lm.prefill(example.tokens)
        for length in range(len(example.prompt), len(example)):
            state = lm.features(example.tokens)[length - 2, 0]
            assert torch.allclose(found.states[at].float(), state.float(), atol=2e-3)
            at += 1


def test_a_first_token_has_no_label(world):
    target, _, all_drafters = world
    data = answered(target, [replace(tiny_examples(1)[0], prompt=(3,))], 6, frozenset())
    found = labelled_positions(target, Features(target, data, (1, 2, 3, 4), None)((0,), (1, 2, 3, 4)), all_drafters, 2)
    assert found.tokens.tolist() == list(data[0].output[:-1])
    assert set(found.labels) == set(all_drafters)


def test_places_are_joined_in_order(world):
    target, data, all_drafters = world
    batches = [Features(target, data, (1, 2, 3, 4), None)((i,), (1, 2, 3, 4)) for i in range(2)]
    one, other = (labelled_positions(target, batch, all_drafters, 3) for batch in batches)
    both = join_labels([one, other])
    assert len(both) == len(one) + len(other)
    assert both.labels["eagle"].tolist() == [*one.labels["eagle"].tolist(), *other.labels["eagle"].tolist()]


def test_a_drafter_of_other_drafts_is_refused(world):
    with pytest.raises(Refusal, match="no length predictor for 'ngram'; there are: eagle, draft-lm, early-exit"):
        ready_drafter("ngram", checkpoint("ngram", world[2]["eagle"]), world[0])
