"""The curve that a run follows: from made-up decodes, and in a run whose target takes a known time."""

import time
from dataclasses import replace

import pytest

from specdec_lib.bench import run
from specdec_lib.bench.followed_curve import FollowedCurve, forwards_of, resumed_methods
from specdec_lib.catalog import method_spec
from specdec_lib.cost.curves import CostCurve
from specdec_lib.cost.refit import refitted
from tests.bench.made_up import decodes, turn
from tests.bench.test_run import PROMPTS, TARGET, plan, stop_after, world

CURVE = CostCurve((1, 5, 9), (8,), ((1.0, 1.01, 1.02),))
DEAR = [*decodes("ar", *[turn(0, 0)] * 90), *decodes("wide", *[turn(4, 1, target=3.0)] * 90)]


def test_a_saved_curve_stays_and_one_that_is_refitted_follows_the_decodes():
    saved, measured = FollowedCurve(CURVE), FollowedCurve(CURVE, refits=True)
    for followed in (saved, measured):
        followed.learn(DEAR)
    assert saved.now is CURVE
    assert not saved.refits
    assert measured.now == refitted(CURVE, list(forwards_of(DEAR)))
    assert measured.now.nodes() < CURVE.nodes()
    assert measured.budgets == [CURVE.nodes(), measured.now.nodes()]
    assert measured.begun is CURVE


def test_each_refit_begins_with_the_curve_of_the_start():
    """What one prompt added does not stay when its forwards are no longer among the latest."""
    followed = FollowedCurve(CURVE, refits=True)
    followed.learn(DEAR)
    calm = [*decodes("ar", *[turn(0, 0)] * 400), *decodes("wide", *[turn(4, 1, target=1.01)] * 400)]
    followed.learn(calm)
    assert followed.now == refitted(CURVE, list(forwards_of(calm)))


def test_forwards_beside_a_drafter_and_those_of_peers_do_not_count():
    beside = decodes("pearl", turn(4, 1)._replace(wall=1.0), prompts=1)
    peers = decodes("hf-generate", turn(0, 0))
    without = [replace(one, peer=True, outcome=replace(one.outcome, rows=())) for one in peers]
    assert list(forwards_of([*beside, *without])) == []
    assert list(forwards_of(decodes("wide", turn(4, 1, target=2.5), prompts=1))) == [(5, 2.5)]


def test_a_verification_that_resumes_the_drafters_rows_is_no_whole_forward():
    """An early exit writes into the target's cache, so drafted rows are verified by the later layers alone."""
    beside = "pearl(drafter='early-exit')"         # its rows lie in a cache of their own
    specs = [method_spec(name) for name in ("ar", "draft-model", "early-exit", "ppsd", beside)]
    known = resumed_methods(specs)
    assert {"early-exit", "ppsd", "early-exit (warm)", "early-exit (warm, shuffled)"} < known
    assert not {"ar", "draft-model", "ar (warm)", beside} & known
    followed = FollowedCurve(CURVE, refits=True, resumed={"early-exit"})
    followed.learn([*decodes("ar", *[turn(0, 0)] * 90), *decodes("early-exit", *[turn(4, 1, target=.1)] * 90)])
    assert followed.now == refitted(CURVE, [(1, 1.0)] * 450)


def test_there_may_be_no_curve():
    nothing = FollowedCurve(None, refits=True)
    nothing.learn(DEAR)
    assert nothing.now is None
    assert not nothing.refits


class Slow:
    """The table of `test_run`, where each row takes three milliseconds."""

    context, vocab = None, TARGET.vocab

    def fresh(self):
        return self

    def prefill(self, tokens):
        pass

    def __call__(self, tokens, draft):
        time.sleep(.003 * (1 + len(draft)))
        return TARGET(tokens, draft)


def test_a_run_that_began_with_a_wrong_curve_drafts_less_after_a_prompt(tmp_path):
    """The curve says that rows are free: eight nodes. They are not: after the first prompt a draft has one."""
    a_plan = plan(methods=("draft-model",), max_new_tokens=20)

    def summary(name, **more):
        endless = world(target=Slow(), facts=replace(world().facts, end=frozenset()))
        return run.run_bench(a_plan, endless, PROMPTS, tmp_path / name, lambda: CURVE, **more)["settings"]

    kept, refitted_run = summary("kept"), summary("refitted", refits=True)
    assert "refitted_nodes" not in kept
    assert refitted_run["refitted_nodes"] == [8, 1, 1]             # one for each prompt
    assert refitted_run["cost_curve"] == kept["cost_curve"] == CURVE.as_dict()
    assert refitted_run["nodes"] == 8


def test_a_killed_run_goes_on_with_what_it_has_learned(tmp_path):
    a_plan, endless = plan(methods=("draft-model",), max_new_tokens=20), replace(world().facts, end=frozenset())

    def rest(**more):
        return run.run_bench(a_plan, world(target=Slow(), facts=endless), PROMPTS, tmp_path, lambda: CURVE, refits=True,
                             **more)

    with pytest.raises(KeyboardInterrupt):
        rest(progress=stop_after(5))
    assert [part.name for part in (tmp_path / "parts").iterdir()] == ["00000"]
    assert rest()["settings"]["refitted_nodes"] == [8, 1, 1]
