"""The first stage of a pipeline beside the second: in a thread or a process, killed, failing, abandoned."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.how.match import Match
from specdec_lib.loop import decode
from specdec_lib.schedules import pipeline
from specdec_lib.schedules.pipeline import FirstStage, Pipeline
from specdec_lib.schedules.workers import KINDS, Workers
from specdec_lib.types import Budget, Method, Refusal
from specdec_lib.when.fixed import Fixed
from tests.schedules.told import LAYER, TARGET, TEXT, WORLD, Told
from tests.worlds import PROMPT, WARM


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_stage_beside_the_other_writes_what_it_writes_in_turn(kind):
    for seed, ahead in ((0, 1), (1, 3)):
        here, there = (replace(WORLD, target=WORLD.target.fresh()) for _ in range(2))
        *_, inline = decode(PROMPT, here.target, *catalog.build(f"ppsd(ahead={ahead})", here), max_new_tokens=24,
                            sampling=WARM, dice=Dice(seed))
        start = time.perf_counter()
        *_, beside = decode(PROMPT, there.target, *catalog.build(f"ppsd(ahead={ahead},workers='{kind}')", there),
                            max_new_tokens=24, sampling=WARM, dice=Dice(seed))
        assert sum(one.seconds.whole for one in beside.rounds) <= time.perf_counter() - start
        assert beside.output == inline.output
        assert [(one.verdict, one.ahead) for one in beside.rounds] == [(one.verdict, one.ahead)
                                                                      for one in inline.rounds]
        assert all(one.seconds.wall is None for one in inline.rounds)
        assert all(one.seconds.wall >= one.seconds.target > 0 for one in beside.rounds)
    assert not multiprocessing.active_children()


class Dying(Told):
    """Kills its own process, or fails, when it is asked for what follows this many tokens of the text."""

    def __call__(self, session, budget, dice):
        if len(session.tokens) >= len(PROMPT) + 3:
            if multiprocessing.parent_process() is not None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise MemoryError("no room for the cache")
        return super().__call__(session, budget, dice)


class Failing(Told):
    """Fails in the middle of the text."""

    def __call__(self, session, budget, dice):
        if len(session.tokens) >= len(PROMPT) + 3:
            raise MemoryError("no room for the cache")
        return super().__call__(session, budget, dice)


class Interrupting(Told):
    """Sends Ctrl-C to the process that it drafts for in the middle of the text, and never comes back."""

    def __call__(self, session, budget, dice):
        if len(session.tokens) >= len(PROMPT) + 3:
            os.kill(multiprocessing.parent_process().pid, signal.SIGINT)
            signal.pause()
        return super().__call__(session, budget, dice)


def through(stage) -> tuple[int, ...]:
    """The output of a decode whose first stage, in a process, is of this class."""
    made = Method(Fixed(2), stage(TARGET.exit(LAYER).fresh(), TEXT), Match(), Pipeline(LAYER, Workers("process")))
    *_, session = decode(PROMPT, TARGET.fresh(), *made, max_new_tokens=12)
    return session.output


@pytest.mark.parametrize(("stage", "said"), [(Dying, "ended in the middle of a decode .signal SIGKILL"),
                                             (Failing, "failed: MemoryError: no room for the cache")])
def test_a_first_stage_that_dies_or_fails_is_one_sentence_and_leaves_no_process(stage, said):
    with pytest.raises(Refusal, match=said):
        through(stage)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_first_stage_that_is_killed_between_two_rounds_is_one_sentence_and_its_text_was_right(rounds):
    made = Method(Fixed(2), Told(TARGET.exit(LAYER).fresh(), TEXT), Match(), Pipeline(LAYER, Workers("process")))
    sessions = decode(PROMPT, TARGET.fresh(), *made, max_new_tokens=12)
    *_, session = (next(sessions) for _ in range(rounds))
    worker, = multiprocessing.active_children()
    worker.kill()
    with pytest.raises(Refusal, match="signal SIGKILL"):
        list(sessions)
    assert session.output == TEXT[:rounds]
    assert not multiprocessing.active_children()


def test_an_interrupt_in_the_middle_of_the_text_leaves_no_process():
    with pytest.raises(KeyboardInterrupt):
        through(Interrupting)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("kind", KINDS)
def test_the_prefill_holds_the_reading_of_both_stages_and_not_the_first_draw(kind, monkeypatch):
    exit, grow = TARGET.exit(LAYER).fresh(), pipeline.grow
    read = exit.prefill
    monkeypatch.setattr(exit, "prefill", lambda tokens: time.sleep(0.1) or read(tokens))
    monkeypatch.setattr(pipeline, "grow", lambda *call: time.sleep(0.3) or grow(*call))
    method = Method(Fixed(1), FirstStage(exit), Match(), Pipeline(LAYER, Workers(kind)))
    session = next(decode(PROMPT, TARGET.fresh(), *method))
    assert 0.1 <= session.prefill < 0.3 <= session.rounds[0].seconds.whole


def test_an_abandoned_decode_leaves_no_process():
    made = Method(Fixed(2), Told(TARGET.exit(LAYER).fresh(), TEXT), Match(), Pipeline(LAYER, Workers("process")))
    sessions = decode(PROMPT, TARGET.fresh(), *made, max_new_tokens=12)
    next(sessions)
    assert len(multiprocessing.active_children()) == 1
    sessions.close()
    assert not multiprocessing.active_children()


def test_a_policy_that_drafts_nothing_still_fills_the_first_stage():
    made = Method(lambda session, dice: Budget(0), Told(TARGET.exit(LAYER).fresh(), TEXT), Match(), Pipeline(LAYER))
    *_, session = decode(PROMPT, TARGET.fresh(), *made, max_new_tokens=5)
    assert session.output == TEXT[:5]
    assert [round.ahead.tokens for round in session.rounds] == [0] * 5
    assert [round.budget.depth for round in session.rounds] == [1] * 5, "what was drawn is what was planned"


def test_an_exit_above_all_layers_is_refused():
    with pytest.raises(Refusal, match="layers above the exit, and all 4"):
        FirstStage(TARGET.exit(4))
