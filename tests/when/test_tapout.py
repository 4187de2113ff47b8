"""TapOut: rewards, bandits and tallies worked by hand; memory across prompts; losslessness."""

from collections import Counter

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.when.adaedl import AdaEdl
from specdec_lib.when.tapout import ARMS_NOTE, CARD, Arm, TapOut, best_arm_probabilities, thompson, ucb1, ucb_tuned
from tests.when.history import after, trail, turn
from tests.worlds import kit, run, true_law

NAMES = ("confidence", "svip", "adaedl", "svip-difference", "margin")


def arm(*rewards: float) -> Arm:
    found = Arm()
    for reward in rewards:
        found = found.paid(reward)
    return found


def fixed_rule(name: str):
    """An arm whose rule never stops, or always does."""
    return lambda session, dice: Budget(8, stop=Always() if name == "always" else Never())


class Always:
    def __call__(self, trail):
        return True


class Never:
    def __call__(self, trail):
        return False


def bandit(names=("a", "b"), **choice) -> TapOut:
    return TapOut(8, {name: fixed_rule(name) for name in names}, {}, **choice)


def played(policy: TapOut, kept: dict[str, int], rounds: int, dice=NO_DICE, drafted: int = 4) -> list[str]:
    """The arm pulled in each round, where each arm has a fixed number of its drafted tokens accepted."""
    session, pulled = begin((1, 2), 5000), []
    for number in range(rounds):
        notes = policy(session, dice.fork(number, "when")).notes
        arm, *_ = notes[ARMS_NOTE]
        pulled.append(arm)
        session = session.after(turn(drafted, kept[arm], notes=notes))
    return pulled


def test_the_reward_blends_accepted_length_and_accepted_share():
    assert bandit().reward(turn(4, 3)) == pytest.approx(.5 * 3 / 8 + .5 * 3 / 4) == .5625
    assert bandit(blend=1.0).reward(turn(4, 3)) == .375
    assert bandit(blend=0.0).reward(turn(4, 3)) == .75


def test_ucb1_adds_the_root_of_twice_the_log_over_the_pulls():
    # t = 3, ln 3 = 1.0986: .5 + sqrt(1.0986) = 1.548 against .3 + sqrt(2.1972) = 1.782
    assert ucb1([arm(.5, .5), arm(.3)], NO_DICE, "sequence") == 1
    # with .02 in place of 2: .5 + .105 = .605 against .3 + .148 = .448
    assert ucb1([arm(.5, .5), arm(.3)], NO_DICE, "sequence", .02) == 0


def test_ucb_tuned_bounds_the_exploration_by_the_variance():
    # V is above 1/4 for both: .5 + sqrt(1.0986 / 2 / 4) = .871 against .3 + sqrt(1.0986 / 4) = .824
    assert ucb_tuned([arm(.5, .5), arm(.3)], NO_DICE, "sequence") == 0
    # t = 4000: V = sqrt(2 * 8.294 / 2000) = .091 for the steady one, .45 + .019; another .0625 of variance, .45 + .025
    steady, varying = arm(*[.45] * 2000), arm(*[.2, .7] * 1000)
    assert ucb_tuned([steady, varying], NO_DICE, "sequence") == 1
    assert ucb_tuned([steady, arm(*[.43] * 2000)], NO_DICE, "sequence") == 0


def test_gaussian_posteriors_give_the_analytic_probability_of_the_best_arm():
    # means .5 and .25, deviations .5 / sqrt(4) and .5 / sqrt(1): Phi(.25 / sqrt(.0625 + .25)) = .6726
    found = best_arm_probabilities((arm(.5, .5, .5, .5), arm(.25)), "sequence")
    assert found.tolist() == pytest.approx([.6726, .3274], abs=2e-3)


def test_beta_posteriors_give_the_analytic_probability_of_the_best_arm():
    # Beta(2, 1) is the larger of two uniforms, Beta(1, 2) the smaller of two others: 5 of 6 orders
    assert best_arm_probabilities((arm(1.0), arm(0.0)), "depth").tolist() == pytest.approx([5 / 6, 1 / 6], abs=1e-3)
    assert best_arm_probabilities((arm(.5),) * 5, "depth").tolist() == pytest.approx([.2] * 5)


def test_thompson_draws_an_arm_with_the_probability_that_it_is_best():
    arms = (arm(.5, .5, .5, .5), arm(.25))
    dist = every_outcome(lambda dice: thompson(arms, dice, "sequence"))
    assert dist == pytest.approx({0: .6726, 1: .3274}, abs=2e-3)


def test_every_arm_is_pulled_once_in_order_before_the_bandit_chooses():
    for kind in ("ucb1", "ucb-tuned", "thompson"):
        policy = bandit(("a", "b", "c"), bandit=kind)
        assert played(policy, {"a": 4, "b": 0, "c": 0}, 3, Dice(1)) == ["a", "b", "c"]


def test_ucb1_pulls_as_worked_by_hand():
    # rewards .75 and .375. After one pull each: 1.177 of exploration for both, so a; then
    # t = 3: a .75 + 1.048, b .375 + 1.482 = 1.857 > 1.798, so b; t = 4: a .75 + 1.177, b .375 + 1.177, so a;
    # t = 5: a .75 + 1.036 = 1.786, b .375 + 1.269 = 1.644, so a; t = 6: a .75 + .946, b .375 + 1.339 = 1.714 > 1.696
    assert played(bandit(), {"a": 4, "b": 2}, 7) == ["a", "b", "a", "b", "a", "a", "b"]


def test_ucb_tuned_pulls_as_worked_by_hand():
    # rewards .75 and .375 that never vary: V = sqrt(2 ln t / n) is above 1/4 throughout, so the root of ln t / 4n is
    # added. t = 2: .416 to both; t = 3: 1.121 against .899; 4: 1.090, .964; 5: 1.067, 1.009; 6: 1.049, 1.044;
    # t = 7, n = 6 and 1: .75 + .285 = 1.035 against .375 + .698 = 1.073, so b
    assert played(bandit(bandit="ucb-tuned"), {"a": 4, "b": 2}, 8) == ["a", "b", "a", "a", "a", "a", "a", "b"]


def test_at_level_depth_ucb1_pulls_per_depth_as_worked_by_hand():
    policy, session, pulled = bandit(level="depth"), begin((1, 2), 5000), []
    for drafted, kept in ((1, 1), (2, 0), (2, 2), (2, 0), (2, 2)):             # rewards .5625, 0, .625, 0
        notes = policy(session, NO_DICE).notes
        pulled.append(notes[ARMS_NOTE][:2])
        session = session.after(turn(drafted, kept, notes=notes))
    # place 0 knows a .5625 | b 0, a again (1.740 > 1.177) | a .594 + 1.048 > b 1.482 | a .396 + .961 < b 1.665
    # place 1 was not visited at first: a 0 | b .625, b again (1.802 > 1.177) | b .3125 + 1.048 = 1.361 < a 1.482
    assert pulled == [("a", "a"), ("b", "a"), ("a", "b"), ("a", "b"), ("b", "a")]


@pytest.mark.parametrize("kind", ["ucb1", "ucb-tuned", "thompson"])
def test_in_the_long_run_the_better_arm_is_pulled_most(kind):
    pulled = played(bandit(("a", "b", "c"), bandit=kind), {"a": 0, "b": 4, "c": 1}, 300, Dice(2))
    assert Counter(pulled[100:])["b"] > 120


def test_the_same_seed_pulls_the_same_arms_and_another_seed_others():
    kept, policy = {"a": 3, "b": 2, "c": 3}, bandit(("a", "b", "c"), bandit="thompson")
    assert "".join(played(policy, kept, 20, Dice(0))) == "abccbaaaabccbbcccccc"
    assert "".join(played(policy, kept, 20, Dice(1))) != "abccbaaaabccbbcccccc"


def test_at_level_depth_thompson_draws_per_depth_and_is_reproducible():
    policy, session, pulled = bandit(level="depth", bandit="thompson"), begin((1, 2), 5000), []
    for number in range(16):
        notes = policy(session, Dice(3).fork(number, "when")).notes
        first, second, *_ = notes[ARMS_NOTE]
        pulled.append(first + second)
        session = session.after(turn(4, 3 if first == "a" else 2, notes=notes))
    assert pulled == ["aa", "bb", "ab", "ab", "aa", "aa", "aa", "ab", "aa", "aa", "aa", "ab", "aa", "bb", "ab", "aa"]


def test_ucb_works_with_greedy_dice_and_thompson_needs_random_ones():
    assert played(bandit(), {"a": 4, "b": 2}, 3) == ["a", "b", "a"]
    with pytest.raises(ValueError, match="dice"):
        played(bandit(bandit="thompson"), {"a": 4, "b": 2}, 3)


def test_at_level_depth_each_depth_has_its_own_tallies():
    policy = bandit(("always", "never"), level="depth")
    first = policy(begin((1,), 50), NO_DICE)
    assert first.notes[ARMS_NOTE] == ("always",) * 7, "seven tokens of eight after which another could be drawn"
    second = policy(after(turn(1, 1, notes=first.notes)), NO_DICE)
    assert second.notes[ARMS_NOTE] == ("never",) + ("always",) * 6, "one token was drafted: one position has learned"
    assert not second.stop(trail(0.0))
    assert second.stop(trail(0.0, 0.0))
    earned = policy.after({}, after(turn(1, 1, notes=first.notes), turn(2, 1, notes=second.notes)))
    assert {key: (found.pulls, found.total) for key, found in earned.items()} == {
        (0, "always"): (1, .5625), (0, "never"): (1, .3125), (1, "always"): (1, .3125)}


def test_rounds_without_a_draft_or_of_other_policies_earn_no_reward():
    policy = bandit()
    notes = policy(begin((1,), 50), NO_DICE).notes
    other = turn(4, 4, AdaEdl(4)(begin((1,), 5), NO_DICE).stop)
    assert policy.after({}, after(turn(0, 0, notes=notes), turn(4, 4), other)) == {}


def test_an_adaptive_arm_reads_only_its_own_rounds():
    policy = CARD.make(kit(), arms=("adaedl", "svip"))
    session = after(*(turn(4, kept, notes={ARMS_NOTE: (name,)})
                      for name, kept in (("svip", 4), ("adaedl", 4), ("svip", 0))))
    own = policy.arms["adaedl"](policy.own(session, "adaedl"), NO_DICE).stop
    assert own.threshold == pytest.approx(.401)
    assert policy.arms["adaedl"](session, NO_DICE).stop.threshold == pytest.approx(.403)


def test_the_card_has_the_five_arms_with_one_depth():
    policy = CARD.make(kit(nodes=5))
    assert tuple(policy.arms) == NAMES
    assert policy(begin((1,), 50), NO_DICE).depth == 5
    assert {name: part.depth for name, part in policy.arms.items()} == dict.fromkeys(NAMES, 5)
    assert policy.arms["confidence"].of == "best"
    assert CARD.learns_across_prompts
    assert CARD.lossless


def test_arms_take_parameters_of_their_own():
    policy = catalog.build("draft-model@tapout(arms={'svip': {'h': 0.5}, 'margin': {}})", kit()).when
    assert policy.arms["svip"].h == .5
    assert list(policy.arms) == ["svip", "margin"]


def kits(**choice):
    memory = {}
    while True:
        yield kit(memory=memory, **choice)


def finish(world, session) -> None:
    """Tells the memory that the decode is over, as the loop does."""
    for one in world.memory.values():
        one.finish(session)


def first_pull(world, session=None, **choice) -> str:
    return CARD.make(world, **choice)(session or begin((1, 2), 500), NO_DICE).notes[ARMS_NOTE][0]


def test_what_an_arm_earned_outlives_the_prompt_the_last_round_included():
    world = kits()
    own = next(world)
    policy, session = CARD.make(own), begin((1, 2), 500)
    for _ in range(3):
        session = session.after(turn(3, 3, notes=policy(session, NO_DICE).notes))
    finish(own, session)
    assert first_pull(next(world)) == NAMES[3], "three arms have been pulled"
    assert first_pull(kit()) == NAMES[0], "an empty memory knows nothing"


def test_within_one_decode_the_budget_depends_on_the_session_alone():
    policy, there = CARD.make(next(kits())), [after()]
    for _ in range(8):
        there.append(there[-1].after(turn(3, 1, notes=policy(there[-1], NO_DICE).notes)))
    forth = [policy(session, NO_DICE) for session in there]
    assert [policy(session, NO_DICE) for session in there[::-1]][::-1] == forth


def test_without_remember_or_with_other_settings_tallies_start_empty():
    world = kits()
    own = next(world)
    session = after(turn(3, 3, notes=CARD.make(own)(after(), NO_DICE).notes))
    assert first_pull(next(world), session) == NAMES[1]
    finish(own, session)
    assert first_pull(next(world)) == NAMES[1]
    assert first_pull(next(world), bandit="ucb-tuned") == NAMES[0] == first_pull(next(world), remember=False)


@pytest.mark.parametrize("choice", [{"bandit": "thompson"}, {"level": "depth"},
                                    {"level": "depth", "bandit": "thompson"}], ids=str)
def test_with_every_bandit_the_output_distribution_is_the_targets(choice):
    def once(dice):
        world = kit()
        arms = {"svip": {"h": .4}, "margin": {"h": .1}}
        when = CARD.make(world, depth=2, arms=arms, **choice)
        return run(catalog.build("draft-model", world)._replace(when=when), dice)
    assert distance(every_outcome(once), true_law()) < 1e-12


@pytest.mark.parametrize("wrong", [{"level": "token"}, {"bandit": "greedy"}, {"depth": 0}, {"blend": 1.5}, {"arms": ()},
                                   {"exploration": -1.0}], ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal):
        CARD.make(kit(), **wrong)


@pytest.mark.parametrize("arms", [["svip", "fixed"], {"match-length": {}}], ids=str)
def test_an_arm_without_a_stop_rule_is_refused(arms):
    with pytest.raises(Refusal, match="has none: name policies such as confidence"):
        catalog.build(f"draft-model@tapout(depth=3, arms={arms!r})", kit())
