"""ReSpec with a memory: first it equals respec, later it copies from earlier answers, and no token changes."""

import inspect
from dataclasses import replace
from itertools import islice

import pytest

from specdec_lib import catalog
from specdec_lib.loop import decode
from specdec_lib.memory.answers import earlier_answers
from specdec_lib.methods import respec, respec_memory
from specdec_lib.types import ROOT
from tests.worlds import PROMPT, network_kit

EAGER = "respec+memory(theta=99.0)"                # retrieves first in every round but the first


def kits(**memory):
    """Kits of successive decodes with one memory."""
    world = network_kit(None)
    while True:
        yield replace(world, target=world.target.fresh(), indexes={}, memory=memory)


def rounds(kit, name, prompt=PROMPT, tokens=20, stop=None):
    steps = decode(prompt, kit.target, *catalog.build(name, kit), max_new_tokens=tokens, memory=kit.memory)
    *_, last = islice(steps, stop)
    steps.close()
    return last


def drafts(session):
    return [(one.budget.depth, one.draft.tokens, one.draft.parents, one.draft.source) for one in session.rounds]


@pytest.mark.parametrize("theta", [-1.0, 1.0, 99.0])
def test_with_an_empty_memory_it_drafts_as_respec(theta):
    own, other = (rounds(next(kits()), f"{name}(theta={theta})", tokens=40) for name in ("respec+memory", "respec"))
    assert drafts(own) == drafts(other)
    assert own.output == other.output


def test_a_second_decode_of_the_same_prompt_has_fewer_rounds_and_the_same_output(trained_tokens_alone):
    kit = kits()
    first, second = rounds(next(kit), EAGER), rounds(next(kit), EAGER)
    assert len(second.rounds) < len(first.rounds)
    assert second.output == first.output
    assert len(rounds(next(kits()), EAGER).rounds) == len(first.rounds), "an empty memory gains nothing"


def test_the_whole_answer_is_stored_including_the_last_round():
    kit = kits()
    output = rounds(next(kit), EAGER, tokens=9).output
    answers = earlier_answers(next(kit))
    assert answers.size == 10
    assert answers.following(answers.find(output[:1]).first, 20) == output[1:]


def test_an_interrupted_decode_stores_its_output_so_far(trained_tokens_alone):
    kit = kits()
    output = rounds(next(kit), EAGER, stop=3).output
    assert earlier_answers(next(kit)).size == len(output) + 1
    assert 3 <= len(output) < 20


def test_prompts_are_stored_only_with_prompts_true():
    kit = kits()
    tokens = rounds(next(kit), "respec+memory(prompts=True)", tokens=9).tokens
    assert earlier_answers(next(kit)).size == len(tokens) + 1 == len(PROMPT) + 10


def test_within_one_decode_two_calls_give_the_same_draft():
    kit = kits()
    rounds(next(kit), EAGER)
    warm = next(kit)
    method = catalog.build(EAGER, warm)
    *_, before, last = decode(PROMPT, warm.target, *method, max_new_tokens=20)
    round = last.rounds[-1]
    again = method.what(before, round.budget, _Forked())
    assert again.tokens == round.draft.tokens
    assert again.parents == round.draft.parents


class _Forked:
    def fork(self, *key):
        return self


def test_its_defaults_are_those_of_respec():
    own, theirs = (inspect.signature(module.make).parameters for module in (respec_memory, respec))
    shared = (own.keys() & theirs.keys()) - {"remember"}
    assert {"theta", "least", "shape"} < shared
    assert {name: own[name].default for name in shared} == {name: theirs[name].default for name in shared}


def test_respec_learns_across_prompts_where_it_remembers_and_nowhere_else():
    learns = {spec: catalog.card_of(spec).learns_across_prompts for spec in
              ("respec", "respec(remember=0)", "respec(remember=5000)", "respec+memory", "respec+lengthened")}
    assert list(learns.values()) == [False, False, True, True, False]
    assert catalog.card_of("respec+memory").lossless


def test_copies_from_earlier_answers_are_deterministic_trees():
    kit = kits()
    rounds(next(kit), EAGER)
    copied = [one.draft for one in rounds(next(kit), EAGER).rounds
              if any(key < 0 for key, *_ in one.draft.notes.get("feedback-retrieval", ()))]
    assert copied
    assert all(draft.q == () and draft.parents[0] == ROOT for draft in copied)
