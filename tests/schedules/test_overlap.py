"""Overlap: every half of PEARL keeps the target's distribution, and its rounds are the paper's two modes."""

import random

import pytest

from specdec_lib import catalog, measure
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin, decode
from specdec_lib.models.table import Table
from specdec_lib.schedules.overlap import UNSEEN, Flight, Overlap, WithoutLastRows, first_tokens, verify
from specdec_lib.schedules.traces import guided_trace
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft, Method, Verdict
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.fixed import Fixed
from tests.worlds import DRAFT, PROMPT, TARGET, WARM, Scripted, kit, run, true_law

HALVES = [{"pre": pre, "post": post} for pre in (True, False) for post in (True, False)]
DISJOINT = Table({(): (.9, .05, .05), (0,): (.05, .05, .9), (1,): (.9, .05, .05), (2,): (.05, .9, .05)})
UNIFORM = Table({(): (1 / 3, 1 / 3, 1 / 3)})


def method(depth: int = 2, draft=DRAFT, how=None, **halves) -> Method:
    return Method(Fixed(depth), DraftModel(draft), how or Rejection(), Overlap(**halves))


def words(draft, script, depth=3, tokens=12, end=frozenset(), **halves):
    """The rounds of a greedy decode of a scripted target, whose drafter is another scripted text."""
    prompt = (1, 2)
    made = Method(Fixed(depth), DraftModel(Scripted(prompt, draft)), Match(), Overlap(**halves))
    *_, session = decode(prompt, Scripted(prompt, script), *made, max_new_tokens=tokens, end=end)
    return session


@pytest.mark.parametrize("halves", HALVES, ids=str)
@pytest.mark.parametrize("depth", [1, 2])
def test_every_half_keeps_the_target_distribution(depth, halves):
    assert distance(every_outcome(lambda dice: run(method(depth, **halves), dice)), true_law()) < 1e-12


@pytest.mark.parametrize("draft", [DISJOINT, UNIFORM, TARGET], ids=["disjoint", "uniform", "equal"])
def test_no_drafter_moves_the_distribution(draft):
    assert distance(every_outcome(lambda dice: run(method(2, draft), dice)), true_law()) < 1e-12


def test_a_rule_that_takes_the_first_new_token_unseen_is_caught():
    """Were the first token of the new draft committed untested, the enumeration would say so."""
    class Careless(Rejection):
        def __call__(self, session, draft, scores, dice):
            verdict = super().__call__(session, draft, scores, dice)
            heads = [node for node in range(len(draft)) if node + 1 >= getattr(scores, "known", len(scores))]
            if heads and draft.parents[heads[0]] == (verdict.path[-1] if verdict.path else ROOT):
                return Verdict.of(draft, (*verdict.path, heads[0]), UNSEEN)
            return verdict

    def once(dice):
        world = Method(Fixed(2), DraftModel(DRAFT), Careless(), Overlap())
        return run(world, dice)

    assert distance(every_outcome(once), true_law()) > 0.01


@pytest.mark.parametrize("spec", ["pearl@match", "pearl(drafter='suffix-automaton')", "pearl(depth=3)@adaedl",
                                  "pearl@svip"])
def test_other_rules_policies_and_drafters_keep_it_too(spec):
    dist = every_outcome(lambda dice: run(catalog.build(spec, kit()), dice, tokens=2))
    assert distance(dist, true_law(tokens=2)) < 1e-12


def test_a_perfect_drafter_fills_every_round_with_as_many_tokens_as_it_drafts():
    text = tuple(range(3, 30))
    session = words(text, text, depth=3, tokens=13)
    assert session.output == text[:13]
    # the prefill's draft is pending at once: each forward takes three pending tokens' successors and one early token
    assert [len(round.verdict.tokens) for round in session.rounds] == [4, 3, 3, 3]
    assert [round.ahead.discarded for round in session.rounds[:-1]] == [0, 0, 0]


def test_after_a_rejection_nothing_is_pending_and_the_first_new_token_is_tested_alone():
    text = tuple(range(3, 30))
    wrong = text[:4] + (31,) + text[5:]
    session = words(wrong, text, depth=3, tokens=12)
    assert session.output == text[:12]
    sizes = [len(round.draft) for round in session.rounds]
    emitted = [len(round.verdict.tokens) for round in session.rounds]
    # three pending and one early token; two pending, the first of which fails; then the early token alone
    assert sizes[:3] == [4, 3, 1]
    assert emitted[:3] == [4, 1, 1]
    assert session.rounds[1].ahead.discarded == 5      # two pending tokens and the three that follow them


def test_the_halves_differ_in_what_they_submit():
    text = tuple(range(3, 40))
    wrong = (31,) + text[1:]
    both = words(wrong, text, tokens=6)
    no_pre = words(wrong, text, tokens=6, pre=False)
    serial = words(text, text, depth=3, tokens=12, pre=False, post=False)
    assert len(both.rounds[1].draft) == 1
    assert len(no_pre.rounds[1].draft) == 4
    assert [len(round.verdict.tokens) for round in serial.rounds] == [4, 4, 4]       # three drafted and a bonus token


def test_tokens_per_round_follow_the_closed_form_of_the_two_modes():
    """With a = alpha^depth: (1 - a) / ((1 - alpha)(1 - a + alpha)) tokens a round, from the two-mode Markov chain."""
    alpha, depth = 0.8, 4
    pair = Table({(): (.9, .1)}), Table({(): (.7, .3)})              # overlap: .7 + .1 = 0.8
    made = Method(Fixed(depth), DraftModel(pair[1]), Rejection(), Overlap())
    emitted = rounds = 0
    for seed in range(12):
        *_, session = decode((0, 1), pair[0], *made, max_new_tokens=400, sampling=WARM, dice=Dice(seed))
        emitted, rounds = emitted + len(session.output), rounds + len(session.rounds)
    a = alpha ** depth
    assert emitted / rounds == pytest.approx((1 - a) / ((1 - alpha) * (1 - a + alpha)), rel=0.04)


def test_an_end_token_among_the_pending_ends_the_text_and_nothing_is_drafted_behind_it():
    text = (3, 4, 5, 9, 6, 7, 8)
    session = words(text, text, depth=3, tokens=20, end=frozenset({9}))
    assert session.output == (3, 4, 5, 9)
    late = words(text, text, depth=2, tokens=20, end=frozenset({9}))
    assert late.output == (3, 4, 5, 9)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("halves", HALVES, ids=str)
def test_a_decode_ends_after_exactly_as_many_tokens_as_it_may_emit(tokens, halves):
    text = tuple(range(3, 30))
    session = words(text, text, depth=3, tokens=tokens, **halves)
    assert session.output == text[:tokens]


def test_branches_are_tested_as_siblings_and_the_accepted_ones_subtree_goes_on():
    new = Draft((5, 6, 7, 8), (ROOT, ROOT, 0, 1))
    session = begin((1, 2), 10)
    target = Scripted((1, 2), (4, 6, 8, 9))
    flight = Flight(deterministic_chain((4,)))
    draft, verdict, _ = verify(session, flight, flight.pending, new, target((1, 2), flight.pending),
                            method(how=Match()), NO_DICE)
    assert draft.tokens == (4, 5, 6)
    assert verdict == Verdict((0, 2), (4, 6))
    assert Overlap().what_stays(session, flight, new, Budget(9), verdict).pending.tokens == (8,)


def test_a_wrong_branch_leaves_the_correction_and_nothing_pending():
    new = Draft((5, 7), (ROOT, 0))
    session, flight = begin((1, 2), 10), Flight(deterministic_chain((4,)))
    draft, verdict, _ = verify(session, flight, flight.pending, new, Scripted((1, 2), (4, 6))((1, 2), flight.pending),
                            method(how=Match()), NO_DICE)
    assert verdict.tokens == (4, 6)
    assert not len(Overlap().what_stays(session, flight, new, Budget(9), verdict).pending)


def test_rows_that_no_forward_computed_say_so():
    scores = WithoutLastRows(TARGET(PROMPT, Draft()), 2)
    assert len(scores) == 3
    assert scores.best[1:] == (UNSEEN, UNSEEN)
    assert scores.distribution(1).only == scores.distribution(2, WARM).only == UNSEEN
    assert scores.row_stats((0,)).ids[1:].tolist() == [[UNSEEN] * 3] * 2


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_worker_beside_the_target_writes_what_one_in_turn_writes(kind):
    for seed in range(3):
        here = run(catalog.build("pearl(depth=3)", kit()), Dice(seed), tokens=30)
        there = run(catalog.build(f"pearl(depth=3, workers='{kind}')", kit()), Dice(seed), tokens=30)
        assert there == here


def test_times_overlap_where_a_worker_works_beside_the_target():
    *_, inline = decode(PROMPT, TARGET, *catalog.build("pearl(depth=2)", kit(None)), max_new_tokens=20)
    *_, beside = decode(PROMPT, TARGET, *catalog.build("pearl(depth=2, workers='process')", kit(None)),
                        max_new_tokens=20)
    assert all(round.seconds.wall is None for round in inline.rounds)
    assert all(round.seconds.wall > 0 for round in beside.rounds)
    assert [round.verdict for round in inline.rounds] == [round.verdict for round in beside.rounds]


def test_every_drafted_token_is_emitted_pending_or_discarded():
    dice = random.Random(1)
    for seed in range(5):
        *_, session = decode(PROMPT, TARGET, *method(dice.randrange(1, 5)), max_new_tokens=60, sampling=WARM,
                             dice=Dice(seed))
        pending = len(session.rounds[0].draft) - session.rounds[0].ahead.branches     # drafted during the prefill
        for round in session.rounds:
            assert len(round.draft) == pending + round.ahead.branches
            pending = pending + round.ahead.tokens - round.ahead.discarded - len(round.verdict.path)
            assert pending >= 0


def test_a_budget_reaches_no_further_than_what_may_still_be_emitted():
    seen = []

    def when(session, dice):
        return Budget(6)

    class Watching(DraftModel):
        def __call__(self, session, budget, dice):
            seen.append((len(session.tokens), budget.depth))
            return super().__call__(session, budget, dice)

    text = tuple(range(3, 30))
    made = Method(when, Watching(Scripted((1, 2), text)), Match(), Overlap())
    *_, session = decode((1, 2), Scripted((1, 2), text), *made, max_new_tokens=9)
    assert session.output == text[:9]
    assert all(start + depth <= 2 + 9 for start, depth in seen)


# --- a guide: a second continuation of the verified text, scored by the same forward ---------------------------------

def told(*tokens):
    """A guide that always proposes these tokens."""
    return lambda session, budget, dice: deterministic_chain(tokens[:budget.depth])


def drawn(session, budget, dice):
    """A guide that draws from another model; its nodes are submitted as deterministic."""
    return DraftModel(UNIFORM)(session, Budget(1), dice)


@pytest.mark.parametrize("guide", [told(2, 0), told(0, 1), told(1), drawn], ids=["2 0", "0 1", "1", "drawn"])
@pytest.mark.parametrize("draft", [DRAFT, DISJOINT], ids=["usual", "disjoint"])
def test_no_guide_moves_the_distribution(guide, draft):
    made = method(1, draft, guide=guide, reach=2)
    assert distance(every_outcome(lambda dice: run(made, dice)), true_law()) < 1e-12


def test_a_first_token_of_the_drafter_beside_the_guides_must_be_tested_without_it(monkeypatch):
    """It is known not to be the guide's token; tested as drawn from the whole of q it would be biased."""
    from specdec_lib.schedules import overlap

    def whole_q(tree, tip, new):
        heads = new.keep(new.children.get(ROOT, ()))
        there = [tree.tokens[node] for node in tree.children.get(tip, ())]
        return heads.keep(tuple(node for node in range(len(heads)) if heads.tokens[node] not in there))

    monkeypatch.setattr(overlap, "first_tokens", whole_q)
    made = method(1, DRAFT, guide=told(2, 0), reach=2)
    assert distance(every_outcome(lambda dice: run(made, dice)), true_law()) > 1e-3


def test_it_is_tested_as_drawn_from_what_the_guide_left_of_q():
    q = UNIFORM((), Draft()).distribution(0, WARM)
    head, = first_tokens(deterministic_chain((2,)), ROOT, Draft((0,), (ROOT,), (q,))).q
    assert [head.probability(token) for token in range(3)] == pytest.approx([.5, .5, 0])


def test_the_new_draft_goes_on_below_tokens_that_the_guide_brought():
    text = tuple(range(3, 30))
    made = Method(Fixed(4), DraftModel(Scripted((1, 2), text)), Match(), Overlap(guide=told(3, 4)))
    flight, new = Flight(), deterministic_chain(text[:4])
    tree = made.schedule.submitted(begin((1, 2), 10), flight, NO_DICE)
    _, verdict, _ = verify(begin((1, 2), 10), flight, tree, new, Scripted((1, 2), text)((1, 2), tree), made, NO_DICE)
    assert verdict.tokens == (3, 4, 5)
    assert made.schedule.what_stays(begin((1, 2), 10), flight, new, Budget(9), verdict).pending.tokens == (6,)


def test_beside_a_guide_every_drafted_token_is_kept_pending_or_discarded_and_the_guides_are_not_counted():
    for seed in range(5):
        made = method(2, DRAFT, guide=told(2, 0), reach=2)
        *_, session = decode(PROMPT, TARGET, *made, max_new_tokens=60, sampling=WARM, dice=Dice(seed))
        aheads = [round.ahead for round in session.rounds]
        left, seen = 2, []                         # both tokens of the first draft are pending after the prefill
        for ahead in aheads:
            left += ahead.tokens - ahead.discarded - ahead.kept
            seen.append(left)
        assert min(seen) >= 0
        assert max(seen) <= 2
        rows = measure.rows(session)
        accepted, kept = sum(row.accepted for row in rows), sum(row.kept for row in rows)
        assert kept < accepted                     # the guide had a part in it
        lost = sum(row.discarded for row in rows)
        assert measure.discarded_share(rows) == lost / (lost + kept)
        assert {one.before.tokens for one in guided_trace(rows)} == {0}


def test_a_guide_reaches_no_further_than_what_may_still_be_emitted():
    made = Overlap(guide=told(*range(9)), reach=8)
    assert len(made.submitted(begin((1, 2), 4), Flight(), NO_DICE)) == 3
    assert not len(made.submitted(begin((1, 2), 1), Flight(), NO_DICE))


def test_where_the_emitted_text_leaves_the_new_draft_nothing_of_it_stays():
    flight, new, session = Flight(), deterministic_chain((3, 4, 5)), begin((1, 2), 10)
    schedule = Overlap(guide=told(3))
    tree = schedule.submitted(session, flight, NO_DICE)
    scores = Scripted((1, 2), (3, 9))((1, 2), tree)
    _, verdict, _ = verify(session, flight, tree, new, scores, method(how=Match()), NO_DICE)
    assert verdict.tokens == (3, 9)
    assert not len(schedule.what_stays(session, flight, new, Budget(9), verdict).pending)
