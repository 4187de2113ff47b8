"""The loop itself: what goes in is checked, what comes out stops where it should."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.how.match import Match
from specdec_lib.loop import begin, decode, rounds, why_context
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Draft, Refusal
from specdec_lib.when.fixed import Fixed
from tests.worlds import Scripted

TEXT = (5, 6, 7, 8, 9, 10, 11, 12)


def knows(session, budget, dice):
    start = len(session.output)
    return deterministic_chain(TEXT[start:start + budget.depth])


def finish(when=Fixed(3), what=knows, prompt=(1, 2), target=None, **options):
    *_, last = decode(prompt, target or Scripted((1, 2), TEXT), when, what, Match(), **options)
    return last


def test_plain_decoding_has_exactly_one_forward_per_token():
    target = Scripted((1, 2), TEXT)
    done = finish(Fixed(0), lambda *_: Draft(), target=target, max_new_tokens=6)
    assert done.output == TEXT[:6]
    assert target.forwards == 6 == len(done.rounds)
    assert target.prefilled == 1                       # all prompt tokens but the last


def test_it_stops_at_the_first_end_token_inside_an_accepted_path():
    done = finish(max_new_tokens=8, end=frozenset({6}))
    assert done.output == (5, 6)
    assert done.rounds[-1].verdict.path == (0, 1)


def test_it_never_emits_more_than_was_asked_for():
    for room in range(1, 9):
        assert finish(max_new_tokens=room).output == TEXT[:room]


def test_the_last_token_is_decoded_without_a_draft():
    assert [len(round.draft) for round in finish(max_new_tokens=5).rounds] == [3, 0]


def test_an_end_token_in_the_prompt_ends_nothing():
    assert finish(prompt=(1, 2), max_new_tokens=3, end=frozenset({2})).output == TEXT[:3]


def test_every_emitted_token_has_its_log_probability():
    done = finish(max_new_tokens=8)
    assert sum(len(round.logprobs) for round in done.rounds) == 8
    expected = 5.0 - torch.logsumexp(torch.tensor([5.0] + [0.0] * 31), 0).item()
    assert done.rounds[0].logprobs == pytest.approx([expected] * 4, abs=1e-6)


@pytest.mark.parametrize(("prompt", "room", "context", "word"), [
    ((), 5, None, "empty"), ((1, 2), 0, None, "max_new_tokens"), ((1, 2, 3), 5, 3, "3 tokens"),
    (((1, 2), (3, 4)), 5, None, "batch"), ((1, 2.7), 5, None, "whole numbers"), ((-100, 2), 5, None, "padding"),
    ((1, 2), 2.5, None, "whole number"), ((1, 2), float("nan"), None, "whole number"),
    (torch.tensor([[1, 2]]), 5, None, "batch"), ("a text", 5, None, "encode it")])
def test_bad_input_is_refused_in_one_sentence(prompt, room, context, word):
    with pytest.raises(Refusal, match=word):
        begin(prompt, room, context=context)


@pytest.mark.parametrize(("options", "word"), [
    ({"prompt": (1, 10 ** 6)}, "own tokenizer"), ({"sampling": 0.8}, "temperature=0.8"), ({"dice": 3}, "Dice")])
def test_what_a_decode_cannot_use_is_refused_in_one_sentence(options, word):
    with pytest.raises(Refusal, match=word):
        finish(**options)


def test_the_context_bounds_the_room():
    assert begin((1, 2, 3), 50, context=10).remaining == 7


@pytest.mark.parametrize(("context", "ends", "said"), [(3, 3, True), (3, 8, False), (3, None, False)])
def test_a_context_that_ends_where_positions_change_is_refused_with_the_reason(context, ends, said):
    target = SimpleNamespace(context=context, moves_after=ends)
    with pytest.raises(Refusal, match="target's context holds 3") as refusal:
        decode((1, 2, 3), target, Fixed(0), knows, Match())
    assert ("beyond it this model changes the angles of all positions" in str(refusal.value)) is said
    assert why_context(SimpleNamespace(context=context)) == ""


def test_a_tensor_of_ids_is_a_prompt():
    assert begin(torch.tensor([1, 2]), 5).tokens == (1, 2)


def overlapped(round):
    return replace(round, seconds=round.seconds._replace(what=0.8, target=0.9, wall=1.0))


def two_at_once(session, target, method, dice):
    """A schedule of its own: the serial rounds, each said to have overlapped and to have taken a second."""
    for now in rounds(session, target, method, dice):
        yield replace(now, rounds=tuple(map(overlapped, now.rounds)))


def test_a_method_brings_its_own_schedule_and_the_same_tokens_come_out():
    serial = finish(max_new_tokens=6)
    *_, own = decode((1, 2), Scripted((1, 2), TEXT), Fixed(3), knows, Match(), two_at_once, max_new_tokens=6)
    assert own.output == serial.output
    assert [one.seconds.whole for one in own.rounds] == [1.0] * len(own.rounds)


def test_the_seconds_of_serial_rounds_are_the_sum_of_their_parts():
    for one in finish(max_new_tokens=6).rounds:
        assert one.seconds.wall is None
        assert one.seconds.whole == pytest.approx(sum(one.seconds[:4]))
