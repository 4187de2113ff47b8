"""PEARL with other drafters: what is a part of the target drafts on a cache of its own, wherever the worker runs."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.loop import begin, decode
from specdec_lib.types import NO_DICE, Budget
from tests.worlds import PROMPT, WARM, network_kit

EXIT = "drafter='early-exit'"


@pytest.mark.parametrize("spec", [f"pearl(depth=3, {EXIT})", "double(depth=3, retriever='early-exit')"])
def test_an_exit_of_the_target_drafts_beside_it_on_a_cache_of_its_own(spec):
    world = network_kit(None)
    method = catalog.build(spec, world)
    session = begin(PROMPT, 20)
    world.target.prefill(PROMPT)
    before = world.target.cache.rows.tokens
    assert len(method.what(replace(session, tokens=(*PROMPT, 2, 2)), Budget(3), NO_DICE))
    assert world.target.cache.rows.tokens == before == PROMPT


@pytest.mark.parametrize(("kind", "seeds"), [("thread", 3), ("process", 1)])      # a process takes seconds to start
def test_an_exit_of_the_target_writes_in_a_worker_what_it_writes_in_turn(kind, seeds):
    for seed in range(seeds):
        outputs = []
        for workers in (kind, "inline"):
            world = network_kit()
            method = catalog.build(f"pearl(depth=3, {EXIT}, workers='{workers}')", world)
            *_, session = decode(PROMPT, world.target, *method, max_new_tokens=60, sampling=WARM, dice=Dice(seed))
            outputs.append(session.output)
        assert outputs[0] == outputs[1]
