"""The ablation step of the trigger: only the policy differs from sam+eagle2, only the candidates from respec."""

import pytest

from specdec_lib import catalog
from specdec_lib.loop import decode
from tests.worlds import PROMPT, network_kit


def built(name):
    return catalog.build(name, network_kit(None))


def test_it_differs_from_sam_with_eagle2_in_the_policy_only():
    base, step = built("sam+eagle2"), built("sam+eagle2+trigger")
    assert type(step.what) is type(base.what)
    assert list(step.what.drafters) == list(base.what.drafters)
    assert type(step.how) is type(base.how)
    assert type(step.when) is not type(base.when)
    assert (step.when.retrieve, step.when.model) == (base.when.copy, base.when.other)
    assert step.what.drafters["suffix-automaton"].threshold == base.when.threshold == 3


def test_it_can_only_take_copies_away_unless_a_match_of_its_own_is_asked_for():
    whole, alone = built("sam+eagle2+trigger(theta=99)"), built("sam+eagle2+trigger(theta=99, match=1)")
    assert [one.what.drafters["suffix-automaton"].threshold for one in (whole, alone)] == [3, 1]
    assert alone.when == whole.when


def test_the_step_of_the_candidates_asks_for_a_shorter_match_and_copies_four_times_as_many_nodes():
    step, full = built("sam+eagle2+trigger"), built("respec")
    assert step.what.drafters["suffix-automaton"].threshold == full.what.drafters["feedback-retrieval"].query + 1
    assert full.when.retrieve.size == 4 * step.when.retrieve.size
    assert full.when.model == step.when.model


def test_its_trigger_is_that_of_respec():
    step, full = built("sam+eagle2+trigger").when, built("respec").when
    for name in ("look_back", "penalty", "threshold", "reading", "unit"):
        assert getattr(step, name) == getattr(full, name)


@pytest.mark.parametrize(("theta", "sources"), [(-1.0, {"eagle2"}), (99.0, {"suffix-automaton", "eagle2"})])
def test_the_threshold_decides_whether_it_retrieves(theta, sources):
    world = network_kit(None)
    *_, last = decode(PROMPT, world.target, *catalog.build(f"sam+eagle2+trigger(theta={theta})", world),
                      max_new_tokens=40)
    assert {round.budget.source for round in last.rounds} == sources
