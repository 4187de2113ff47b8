"""Rounds of a schedule that overlaps: their widths are those of the forwards, their budgets those of what they test."""

import time
from contextlib import contextmanager

import pytest

from specdec_lib import catalog
from specdec_lib.bench.runners import run_timed
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.how.match import Match
from specdec_lib.loop import begin, decode
from specdec_lib.measure import rows
from specdec_lib.schedules.overlap import Overlap
from specdec_lib.schedules.workers import KINDS, Workers
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Budget, Method
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.fixed import Fixed
from tests.worlds import PROMPT, Scripted, network_kit

HALVES = [{"pre": pre, "post": post} for pre in (True, False) for post in (True, False)]


class Counted(Scripted):
    """A target that notes how many rows each forward had."""

    def __init__(self, prompt, script):
        super().__init__(prompt, script)
        self.rows = []

    def __call__(self, tokens, draft):
        self.rows.append(1 + len(draft))
        return super().__call__(tokens, draft)


@pytest.mark.parametrize("spec", ["pearl(depth=3)", "pearl(depth=3,pre=False)", "specbranch(depth=3)",
                                  "double(depth=2)", "duodecoding(depth=4)"])
def test_the_width_of_a_round_is_the_number_of_rows_that_its_forward_had(spec):
    text = tuple(range(3, 13)) * 4
    wrong = tuple(31 if place % 7 == 3 else token for place, token in enumerate(text))
    target = Counted((1, 2), text)
    world = Kit(target, TokenizerFacts(vocab=32), nodes=4, draft=Scripted((1, 2), wrong), parts=catalog.make_part)
    *_, session = decode((1, 2), target, *catalog.build(spec, world), max_new_tokens=30)
    assert [row.width for row in rows(session)] == target.rows


def late_draft(session, budget, dice):
    time.sleep(0.0 if session.output else 0.2)
    return deterministic_chain((9,) * budget.depth)


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_what_a_drafter_needs_for_its_first_draft_is_decoding_in_every_schedule(kind):
    schedule = kind and Overlap(Workers(kind))
    target, method = Scripted((1, 2), (3, 4, 5, 6, 7)), Method(Fixed(2), late_draft, Match(), schedule)
    done = run_timed(begin((1, 2), 5), target, method, NO_DICE)
    session = next(decode((1, 2), target, *method))
    assert done.prefill < 0.2 <= min(done.rows[0].seconds, session.rounds[0].seconds.whole)


def test_no_second_of_a_drafter_in_turn_counts_twice():
    def slowly(session, budget, dice):
        time.sleep(0.01)
        return deterministic_chain((9,) * budget.depth)
    start = time.perf_counter()
    *_, session = decode((1, 2), Scripted((1, 2), range(3, 11)), Fixed(2), slowly, Match(), Overlap(), max_new_tokens=8)
    assert sum(one.seconds.whole for one in session.rounds) <= time.perf_counter() - start


@pytest.mark.parametrize("spec", ["pearl(depth=2)", "ppsd(layer=1)"])
def test_the_start_of_a_worker_is_part_of_the_first_round(spec, monkeypatch):
    opened = Workers.open

    @contextmanager
    def slowly(self, what, session):
        time.sleep(0.2)
        with opened(self, what, session) as worker:
            yield worker

    world = network_kit(None)
    method = catalog.build(spec, world)
    monkeypatch.setattr(Workers, "open", slowly)
    *_, session = decode(PROMPT, world.target, *method, max_new_tokens=5)
    first, *others = (one.seconds.whole for one in session.rounds)
    assert session.prefill < 0.2 <= first
    assert max(others) < 0.2


@pytest.mark.parametrize("halves", HALVES, ids=str)
def test_a_round_holds_the_budget_of_the_draft_that_it_tests(halves):
    """Policies that learn pair a budget with the verdict on its draft; what was asked beside it stands beside it."""
    text, asked = tuple(range(3, 30)), []

    def when(session, dice):
        asked.append(2 + len(asked) % 3)
        return Budget(asked[-1], notes={"number": len(asked)})

    method = Method(when, DraftModel(Scripted((1, 2), text)), Match(), Overlap(**halves))
    *_, session = decode((1, 2), Scripted((1, 2), text), *method, max_new_tokens=24)
    for one in session.rounds[:-2]:
        drafted = len(one.draft) - one.ahead.branches
        if drafted:                                # less one where its first token was emitted a round before
            assert one.budget.depth - drafted in (0, 1), one
        assert one.ahead.made == one.ahead.tokens or not halves["pre"]
    if halves == {"pre": False, "post": False}:
        late = session.rounds[1:5]                 # the first draft is made during the prefill
        assert [one.ahead.made for one in late] == [len(one.draft) for one in late]
