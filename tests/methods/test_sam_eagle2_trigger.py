"""The trigger's rung: it differs from the one below in who decides, and from the one above in what is copied."""

import pytest

from specdec_lib import catalog
from specdec_lib.loop import decode
from tests.worlds import PROMPT, network_kit


def built(name):
    return catalog.build(name, network_kit(None))


def test_it_differs_from_sam_with_eagle2_in_who_decides_alone():
    below, here = built("sam+eagle2"), built("sam+eagle2+trigger")
    assert type(here.what) is type(below.what)
    assert list(here.what.drafters) == list(below.what.drafters)
    assert type(here.how) is type(below.how)
    assert type(here.when) is not type(below.when)
    assert (here.when.retrieve, here.when.model) == (below.when.copy, below.when.other)


def test_its_trigger_is_that_of_respec():
    here, above = built("sam+eagle2+trigger").when, built("respec").when
    for rule in ("look_back", "penalty", "threshold", "reading", "unit"):
        assert getattr(here, rule) == getattr(above, rule)


@pytest.mark.parametrize(("theta", "sources"), [(-1.0, {"eagle2"}), (99.0, {"suffix-automaton", "eagle2"})])
def test_the_threshold_says_whether_the_past_is_asked(theta, sources):
    world = network_kit(None)
    *_, last = decode(PROMPT, world.target, *catalog.build(f"sam+eagle2+trigger(theta={theta})", world),
                      max_new_tokens=40)
    assert {round.budget.source for round in last.rounds} == sources
