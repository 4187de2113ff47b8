"""The confidence threshold and its refit."""

from dataclasses import replace

import pytest

from specdec_lib.loop import begin
from specdec_lib.scores import TokenStats
from specdec_lib.trees import grow
from specdec_lib.types import NO_DICE, Refusal, Verdict
from specdec_lib.when.confidence import CARD, BelowConfidence, Confidence, fit_threshold, verified_tokens
from tests.when.history import after, turn
from tests.worlds import DRAFT, PROMPT, kit


def test_it_stops_after_the_first_token_below_the_threshold():
    session = begin(PROMPT, 20)
    draft = grow(session, Confidence(6, .55)(session, NO_DICE), NO_DICE, lambda draft: DRAFT(session.tokens, draft))
    assert [round(stat.prob, 2) for stat in draft.stats] == [.4]            # after 1 the best probability is .4
    longer = grow(session, Confidence(6, .39)(session, NO_DICE), NO_DICE, lambda draft: DRAFT(session.tokens, draft))
    assert len(longer) == 6


def test_a_probability_equal_to_the_threshold_does_not_stop():
    stat = TokenStats(.4, .4, .1, 1.0)
    assert not BelowConfidence(.4)((stat,))
    assert BelowConfidence(.41)((stat,))
    assert not BelowConfidence(.9)(())


def test_an_impossible_threshold_is_refused():
    with pytest.raises(Refusal):
        Confidence(4, 1.5)


def test_its_depth_comes_from_the_cost_curve():
    assert CARD.make(kit(nodes=5)) == Confidence(5)


def test_with_of_best_the_rule_tests_the_best_token_whatever_was_drawn():
    trail = (TokenStats(.1, .7, .1, 1.0),)
    assert BelowConfidence(.4)(trail)
    assert not BelowConfidence(.4, "best")(trail)
    assert BelowConfidence(.8, "best")(trail)


def probs(*values):
    return tuple(TokenStats(value, .9, .05, 1.0) for value in values)


def test_accepted_tokens_and_the_first_rejected_one_of_a_round_count():
    assert verified_tokens(turn(4, 2, None, probs(.9, .8, .3, .7))) == [(.9, True), (.8, True), (.3, False)]
    assert verified_tokens(turn(2, 2, None, probs(.9, .8))) == [(.9, True), (.8, True)]
    assert verified_tokens(turn(2, 1, None, probs(.7, .6)), "best") == [(.9, True), (.9, False)]
    assert verified_tokens(turn(3, 1)) == []


def test_a_token_that_the_loop_cut_off_does_not_count_as_rejected():
    whole = turn(3, 2, None, probs(.9, .8, .7))
    assert verified_tokens(replace(whole, verdict=Verdict((0, 1), whole.verdict.tokens[:2]))) == [(.9, True),
                                                                                                  (.8, True)]


def test_the_fitted_threshold_weights_fnr_three_times():
    # accepted .9 .8 .6 .5, rejected .7 .3: cost of .9 is 9/4, .8 6/4, .7 1/2 + 6/4, .6 1/2 + 3/4, .5 1/2, .3 1
    verified = [(.9, True), (.8, True), (.7, False), (.6, True), (.5, True), (.3, False)]
    assert fit_threshold(verified) == .5
    assert fit_threshold(verified, miss=.5) == .8
    assert fit_threshold([(.5, True), (.5, True), (.5, True), (.5, False), (.5, False), (.4, False)]) == .5


def test_at_equal_cost_the_highest_threshold_is_taken():
    # accepted .9 (five) and .7, rejected .8 and .1: cost of .9 is 3/6, of .7 1/2
    verified = [(.9, True)] * 5 + [(.8, False), (.7, True), (.1, False)]
    assert fit_threshold(verified) == .9
    assert fit_threshold(verified, miss=3.1) == .7


def test_with_few_tokens_or_one_kind_alone_the_given_threshold_holds():
    assert fit_threshold([(.9, True)] * 4 + [(.2, False)]) is None
    assert fit_threshold([(.9, True)] * 9) is None
    policy = Confidence(4, .35, refit=True)
    assert policy(after((4, 2, None, probs(.9, .8, .3, .7))), NO_DICE).stop == BelowConfidence(.35)


def test_it_refits_to_all_rounds_of_the_session():
    rounds = [(4, 2, None, probs(.9, .8, .3, .7)), (3, 3, None, probs(.5, .9, .6)), (2, 0, None, probs(.45, .9))]
    policy = Confidence(4, .2, refit=True)
    assert [policy(after(*rounds[:n]), NO_DICE).stop.threshold for n in range(4)] == [.2, .2, .5, .5]
    assert Confidence(4, .2)(after(*rounds), NO_DICE).stop.threshold == .2


@pytest.mark.parametrize("wrong", [{"of": "worst"}, {"miss": -1.0}], ids=str)
def test_an_impossible_choice_is_refused(wrong):
    with pytest.raises(Refusal, match="miss"):
        CARD.make(kit(), **wrong)


def test_a_remembered_threshold_starts_the_next_prompt_and_its_list_is_empty():
    memory, first = {}, (6, 5, None, probs(.9, .8, .7, .6, .5, .3))

    def policy(**choice):
        return CARD.make(kit(memory=memory), threshold=.2, refit=True, **choice)

    asked = policy(remember=True)
    assert asked(after(), NO_DICE).stop.threshold == .2
    assert asked(after(first), NO_DICE).stop.threshold == .5       # kept down to .5, refused .3
    for one in memory.values():
        one.finish(after(first))
    later = policy(remember=True)
    assert later(after(), NO_DICE).stop.threshold == .5
    assert later(after(first[:3] + (probs(*[.1] * 6),)), NO_DICE).stop.threshold == .1
    assert policy()(after(), NO_DICE).stop.threshold == .2


def test_only_the_last_two_thousand_verified_tokens_count():
    def threshold(kept):                           # one rejected token, then so many accepted ones
        rounds = (1, 0, None, probs(.1)), (kept, kept, None, probs(*[.2] * kept))
        return Confidence(4, .4, refit=True)(after(*rounds), NO_DICE).stop.threshold
    assert threshold(1999) == .2
    assert threshold(2000) == .4, "the rejected token no longer counts, so one kind alone is left"


def test_only_a_refitted_threshold_can_be_remembered():
    with pytest.raises(Refusal, match="refit=True"):
        CARD.make(kit(), remember=True)
