"""Pending drafts: where the drafter was right, the states one row earlier, and the fate that a decode gives them."""

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.heads.hrad import last_levels
from specdec_lib.loop import decode
from specdec_lib.training.data.features import Features
from specdec_lib.training.data.length_labels import UNKNOWN, kept_lengths, ready_drafter
from specdec_lib.training.data.pending_drafts import join_drafts, one_later, pending_drafts
from specdec_lib.training.eval.teacher_forced import matches
from specdec_lib.training.nets.draft_lm import DraftLMNet
from tests.training.lessons import answered, checkpoint
from tests.training.tiny import tiny_examples, tiny_target

LONGEST, NOISE = 2, .2


@pytest.fixture(scope="module")
def world():
    """(target, greedy answers, a draft model that is often right: all of the target's layers and some noise)."""
    target = tiny_target()
    drafter = DraftLMNet(target, torch.arange(40), (0, 1, 2, 3))
    dice = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.add_(NOISE * parameter.std() * torch.randn(parameter.shape, generator=dice))
    return target, answered(target, tiny_examples(8), 16, frozenset()), checkpoint("draft-lm", drafter)


def found(world, levels):
    target, data, stored = world
    batch = Features(target, data, levels, None)(range(len(data)), levels)
    return batch, pending_drafts(batch, ready_drafter("draft-lm", stored, target), levels, LONGEST)


def test_a_row_later_is_one_row_down():
    assert one_later(torch.tensor([[1, 2, 3]])).tolist() == [[0, 1, 2]]


def test_drafts_are_pending_where_the_drafter_was_right_and_have_the_states_of_the_row_before(world):
    target, data, stored = world
    levels = last_levels(target.layers, 2)
    batch, drafts = found(world, levels)
    right = matches(ready_drafter("draft-lm", stored, target), batch, LONGEST)[0]
    kept, at = kept_lengths(right, batch), 0
    for place, example in enumerate(data):
        lm = target.fresh()
        lm.tap(levels)
        lm.prefill(example.tokens)
        for length in range(len(example.prompt) + 1, len(example)):
            if not right[0, place, length - 2] or kept[place, length - 1] == UNKNOWN:
                continue
            assert int(drafts.tokens[at]) == example.tokens[length - 1]
            assert int(drafts.accepted[at]) == int(kept[place, length - 1])
            assert torch.allclose(drafts.states[at].float(), lm.features(example.tokens)[length - 2].float(), atol=4e-3)
            at += 1
    assert at == len(drafts) > 0


def test_their_fate_is_that_of_the_drafts_that_the_schedule_keeps_pending(world):
    """Every draft that a decode of specbranch keeps after an accepted likeliest token is found, with its accepted."""
    target, data, stored = world
    draft, met = draft_lm(stored.state, target.weights), 0
    batch, drafts = found(world, (target.layers,))
    known, at = {}, iter(range(len(drafts)))
    right = matches(ready_drafter("draft-lm", stored, target), batch, LONGEST)[0]
    kept = kept_lengths(right, batch)
    for place, example in enumerate(data):
        for length in range(len(example.prompt) + 1, len(example)):
            if right[0, place, length - 2] and kept[place, length - 1] != UNKNOWN:
                known[example.tokens[:length]] = int(drafts.accepted[next(at)])
    for example in data:
        lm = target.fresh()
        kit = Kit(lm, TokenizerFacts(vocab=40), draft=draft, parts=catalog.make_part)
        method = catalog.build(f"specbranch(depth={LONGEST + 1}, most=1, epsilon=0)", kit)
        sessions = list(decode(example.prompt, lm, *method, max_new_tokens=len(example.output)))
        for before, after in zip(sessions, sessions[1:], strict=False):
            one = after.rounds[-1]
            waiting = len(one.draft) - (one.ahead.branches or 0)
            if waiting == LONGEST and before.tokens in known:
                assert known[before.tokens] == min(len(one.verdict.path), LONGEST)
                met += 1
    assert met > 0, "the decodes have met none of them"


def test_joined_drafts_stand_in_order(world):
    _, drafts = found(world, (3, 4))
    both = join_drafts([drafts, drafts])
    assert len(both) == 2 * len(drafts)
    assert torch.equal(both.states[len(drafts):], drafts.states)
