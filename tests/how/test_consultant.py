"""Consultant Decoding on scores made by hand: running surprise over rounds, limits, and the output distribution."""

import math
from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.cards import TokenizerFacts
from specdec_lib.dice import Dice
from specdec_lib.exact import every_outcome
from specdec_lib.how.consultant import Consultant, carried_surprise, make, surprises, target_choice
from specdec_lib.loop import begin, decode, step
from specdec_lib.models.table import Table
from specdec_lib.sampling import Sampling
from specdec_lib.scores import Scores
from specdec_lib.specs import split_specs
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, ROOT, Draft, Method, Refusal, Verdict
from specdec_lib.when.fixed import Fixed
from tests.how.surprise import FREE, n, trees
from tests.worlds import PROMPT, TARGET, WARM, Noted, kit, run

ROW = (.5, .3, .15, .05)                           # surprises .69, 1.20, 1.90 and 3.00 nats
BEST, NEAR, FAR, RARE = range(4)


def scores(*rows) -> Scores:
    """Probabilities by row; row 0 follows the context, row i + 1 node i. Raw logits may have any offset."""
    return Scores(torch.tensor(rows, dtype=torch.float64).log() + 3)


def judge(how, draft, *rows, session=None, dice=NO_DICE) -> Verdict:
    return how(session or begin((9,), 20), draft, scores(*rows or [ROW] * (len(draft) + 1)), dice)


def chained(*tokens) -> Draft:
    return deterministic_chain(tokens, "draft-model")


def test_the_first_token_is_not_smoothed_and_the_next_ones_are():
    """r = 1.20, then .2 x 1.20 + .8 x 1.90 = 1.76, then .2 x 1.76 + .8 x 3.00 = 2.75."""
    first, second = n(.3), .2 * n(.3) + .8 * n(.15)
    third = .2 * second + .8 * n(.05)
    draft = chained(NEAR, FAR, RARE)
    for eps, kept in ((first - 1e-9, 0), (first + 1e-9, 1), (second - 1e-9, 1), (second + 1e-9, 2),
                      (third - 1e-9, 2), (third + 1e-9, 3)):
        assert len(judge(Consultant(eps), draft).path) == kept
    assert (first, second, third) == pytest.approx((1.2040, 1.7585, 2.7483), abs=1e-4)


def test_the_first_failure_discards_all_below_it_and_the_targets_token_follows():
    assert judge(Consultant(1.0), chained(BEST, RARE, BEST, BEST)) == Verdict((0,), (BEST, BEST))


def test_a_draft_that_passes_whole_is_followed_by_a_bonus_token():
    other = (.1, .7, .1, .1)
    assert judge(Consultant(2.0), chained(NEAR, FAR), ROW, ROW, other) == Verdict((0, 1), (NEAR, FAR, NEAR))
    assert judge(Consultant(2.0), Draft()) == Verdict((), (BEST,))


def test_a_good_past_lets_a_bad_token_pass_and_a_bad_past_stops_a_fair_one():
    assert len(judge(Consultant(2.0, .5), chained(BEST, RARE)).path) == 2      # .5 x .69 + .5 x 3.00 = 1.84
    assert len(judge(Consultant(2.0, .5), chained(RARE, BEST)).path) == 0
    assert len(judge(Consultant(1.0, .8), chained(BEST, FAR)).path) == 2       # .8 x .69 + .2 x 1.90 = .93
    assert len(judge(Consultant(1.0, .8), chained(BEST, FAR, FAR)).path) == 2  # .8 x .93 + .2 x 1.90 = 1.13
    assert len(judge(Consultant(1.0, .8), chained(BEST, FAR, NEAR)).path) == 3     # .8 x .93 + .2 x 1.20 = .99


def test_without_a_past_the_rule_is_a_threshold_on_the_probability():
    for eps in (.5, 1.0, 1.5, 2.0, 3.5):
        for token, prob in enumerate(ROW):
            assert bool(judge(Consultant(eps, 0), chained(token)).path) == (prob >= math.exp(-eps))
            past = judge(Consultant(eps, 0), chained(BEST, token)).path
            assert len(past) == (math.exp(-eps) <= .5) * (1 + (prob >= math.exp(-eps)))


def test_a_token_with_probability_zero_passes_only_an_unbounded_rule():
    row = (.5, .5, 0., 0.)
    assert judge(Consultant(99.), chained(FAR, BEST), row, row, row).path == ()
    for beta in (0, .2):
        assert judge(Consultant(FREE, beta), chained(FAR, BEST), row, row, row).path == (0, 1)


def test_the_surprise_is_taken_at_the_temperature_named():
    some = scores(ROW, ROW)
    assert surprises(chained(NEAR), some) == pytest.approx((n(.3),))
    halved = [math.sqrt(p) for p in ROW]
    assert surprises(chained(NEAR), some, 2.0) == pytest.approx((n(halved[1] / sum(halved)),))
    assert surprises(Draft(), some) == ()


def says(*drafts):
    """A drafter that offers these chains round by round."""
    return lambda session, budget, dice: chained(*drafts[len(session.rounds)][:budget.depth])


def played(how, *drafts, target=None, room=40):
    """The sessions of a greedy decode whose target always has the same distribution."""
    method, now, out = Method(Fixed(4), says(*drafts), how), begin((9,), room), []
    for _ in drafts:
        now = step(now, target or Table({(): ROW}), method)
        out.append(now)
    return out


def test_the_running_surprise_is_carried_over_rejection_and_bonus_as_worked_by_hand():
    """A whole draft and its bonus; a rejection after one token; a draft again."""
    how = Consultant(1.5, .4)
    sessions = played(how, (NEAR, BEST), (FAR, RARE, BEST), (NEAR,))
    r = .4 * n(.3) + .6 * n(.5)                    # .90 after the draft
    r = .4 * r + .6 * n(.5)                        # .77 after the bonus
    assert sessions[0].output == (NEAR, BEST, BEST)
    assert carried_surprise(sessions[0].rounds, .4) == pytest.approx(r)
    r = .4 * r + .6 * n(.15)                       # 1.45 passes, .4 x 1.45 + .6 x 3.00 = 2.38 does not
    assert r < 1.5 < .4 * r + .6 * n(.05)
    assert sessions[1].rounds[-1].verdict == Verdict((0,), (FAR, BEST))
    assert carried_surprise(sessions[1].rounds, .4) == pytest.approx(n(.5))    # the resampled token alone
    assert carried_surprise(sessions[2].rounds, .4) == pytest.approx(.4 * (.4 * n(.5) + .6 * n(.3)) + .6 * n(.5))


def test_what_one_round_leaves_behind_decides_the_next():
    row = (.34, .3, .3, .06)                       # surprises 1.08, 1.20, 1.20 and 2.81
    target = Table({(): row})
    warm = played(Consultant(2.0, .5), (BEST, BEST), (RARE,), target=target)
    assert warm[1].rounds[-1].verdict.path == (0,)                             # .5 x 1.08 + .5 x 2.81 = 1.95
    assert played(Consultant(2.0, .5), (RARE,), target=target)[0].rounds[-1].verdict.path == ()
    anew = played(Consultant(2.0, .5, reset=True), (BEST, BEST), (RARE,), target=target)
    assert anew[1].rounds[-1].verdict.path == ()


def test_an_uncounted_bonus_leaves_the_running_surprise_where_it_was():
    session, = played(Consultant(2.0, .5), (NEAR, NEAR))
    assert carried_surprise(session.rounds, .5, bonus=False) == pytest.approx(n(.3))
    assert carried_surprise(session.rounds, .5) == pytest.approx(.5 * n(.3) + .5 * n(.5))
    assert carried_surprise(played(Consultant(2.0), ())[0].rounds, .2, bonus=False) is None
    assert carried_surprise((), .2) is None
    for bonus, kept in ((True, 1), (False, 0)):    # .5 x .95 + .5 x 1.90 = 1.42, .5 x 1.20 + .5 x 1.90 = 1.55
        last = played(Consultant(1.45, .5, bonus=bonus), (NEAR, NEAR), (FAR,))[-1]
        assert len(last.rounds[-1].verdict.path) == kept


def test_a_rule_looks_at_the_session_alone_so_asked_twice_it_answers_the_same():
    how = Consultant(1.33, .5)
    sessions = played(Consultant(1.5, .5), (NEAR, BEST), (FAR, RARE, BEST), (NEAR,), (FAR, FAR))
    forth = [judge(how, chained(FAR, NEAR), session=session) for session in sessions]
    back = [judge(how, chained(FAR, NEAR), session=session) for session in sessions[::-1]][::-1]
    assert forth == back == [judge(Consultant(1.33, .5), chained(FAR, NEAR), session=s) for s in sessions]
    assert len({len(verdict.path) for verdict in forth}) > 1


def test_the_fold_repeats_the_very_numbers_that_the_rule_compared():
    seen = []

    class Noting(Consultant):
        def __call__(self, session, draft, scores, dice):
            seen.append((session, surprises(draft, scores)))
            return super().__call__(session, draft, scores, dice)

    what = kit().part("draft-model")
    for last in decode(PROMPT, TARGET, Fixed(3), what, Noting(1.2), max_new_tokens=30, sampling=WARM, dice=Dice(2)):
        pass
    for (_, was), round in zip(seen, last.rounds, strict=True):
        kept = len(round.verdict.path)
        assert tuple(-x for x in round.logprobs[:kept]) == was[:kept]


def test_a_cut_round_can_be_folded():
    session, = played(Consultant(FREE), (NEAR, NEAR, NEAR), room=2)
    assert session.done
    assert carried_surprise(session.rounds, .5) is not None


def test_an_end_token_passes_only_as_the_targets_own_choice():
    ended = begin((9,), 20, end=frozenset({NEAR}))
    assert judge(Consultant(2.0), chained(BEST, NEAR), session=ended) == Verdict((0,), (BEST, BEST))
    assert judge(Consultant(2.0, spare_end=False), chained(BEST, NEAR), session=ended).path == (0, 1)
    own = begin((9,), 20, end=frozenset({BEST}))
    assert judge(Consultant(2.0), chained(NEAR, BEST), session=own).path == (0, 1)


def test_a_control_token_passes_only_as_the_targets_own_choice():
    assert judge(Consultant(2.0, never=frozenset({NEAR})), chained(NEAR, BEST)) == Verdict((), (BEST,))
    assert judge(Consultant(2.0, never=frozenset({BEST})), chained(NEAR, BEST)).path == (0, 1)


def test_the_kit_says_which_tokens_those_are():
    facts = TokenizerFacts(frozenset({1}), frozenset({2}), frozenset({3}), frozenset({4}), vocab=9)
    world = replace(kit(), facts=facts)
    assert make(world).never == {1, 2}
    assert make(world).spare_end
    bare = make(world, spare=())
    assert bare.never == frozenset()
    assert not bare.spare_end
    assert make(world, spare=("end", "digit", "fence")).never == {1, 3, 4}
    assert make(world, spare=("control",)).never == {2}
    assert not make(world, spare=("control",)).spare_end


def test_a_spared_token_is_drawn_by_the_random_number_that_would_have_replaced_it():
    """So where only token 1 is drafted and spared, one draw decides both and the output is the target's."""
    def once(dice):
        what = says((1,))
        session = begin((9,), 9, sampling=WARM, end=frozenset({1}))
        return Consultant(FREE)(session, what(session, Fixed(1)(session, dice), dice), scores(ROW, ROW), dice).tokens[0]

    assert every_outcome(once) == pytest.approx(dict(enumerate(ROW)))
    session, rows = begin((9,), 9, sampling=WARM), scores(ROW, ROW, ROW)
    for dice in map(Dice, range(9)):               # on a chain the number is the position's, as in plain decoding
        own = dice.at(2).choose(rows.distribution(1, WARM))
        assert target_choice(session, chained(BEST, BEST), rows, dice, 0) == own


def test_in_a_tree_each_path_has_its_own_running_surprise_and_the_longest_wins():
    draft = Draft((BEST, FAR, RARE, RARE, BEST), (ROOT, ROOT, 0, 1, 2))
    assert judge(Consultant(2.0, .5), draft).path == (0, 2, 4)                 # .69, 1.84, 1.27 against 1.90, 2.45
    assert judge(Consultant(1.7, .5), draft).path == (0,)
    assert judge(Consultant(.5, .5), draft) == Verdict((), (BEST,))


def test_of_two_paths_of_one_length_the_likelier_wins():
    draft = Draft((NEAR, BEST, FAR, FAR), (ROOT, ROOT, 0, 1))
    assert judge(Consultant(2.0), draft).path == (1, 3)
    sure = (.04, .03, .9, .03)
    assert judge(Consultant(2.0), draft, ROW, sure, ROW, ROW, ROW).path == (0, 2)


def test_no_random_number_is_drawn_twice_though_spared_tokens_are_asked_about_on_several_paths():
    Noted.thrown = []
    run(Method(Fixed(2, 3), trees, Consultant(3.0, never=frozenset({1, 2}))), Noted(1), tokens=40)
    assert any("beside" in key for key in Noted.thrown)
    assert len(Noted.thrown) > 40
    assert len(set(Noted.thrown)) == len(Noted.thrown)


def test_a_spec_builds_it_behind_the_at_and_calls_the_method_lossy():
    spec = "draft-model(depth=3)@consultant(eps=1.0, reset=True)"
    method, plain = catalog.build(spec, kit()), catalog.build("draft-model(depth=3)", kit())
    assert method.how == Consultant(1.0, reset=True)
    assert method.when == plain.when
    assert not catalog.card_of(spec).lossless
    assert catalog.card_of("draft-model").lossless
    assert split_specs("eagle@consultant(eps=1.0, beta=0), ar") == ["eagle@consultant(eps=1.0, beta=0)", "ar"]


def test_the_sessions_own_temperature_is_taken_when_asked_for_and_is_one_for_greedy():
    cold = kit(Sampling(temperature=.7))
    assert make(cold, temperature=None, reset=True).temperature == .7
    assert make(kit(None), temperature=None).temperature == 1 == make(kit(Sampling()), temperature=None).temperature
    with pytest.raises(Refusal, match="cannot be carried"):
        make(cold, temperature=None)


@pytest.mark.parametrize("wrong", [{"eps": -1.0}, {"eps": math.nan}, {"beta": 1.0}, {"beta": -.1}, {"temperature": 0.0},
                                   {"temperature": .7}, {"spare": ("code",)}, {"spare": "end"}])
def test_parameters_that_mean_nothing_are_refused(wrong):
    with pytest.raises(Refusal):
        make(kit(), **wrong)
