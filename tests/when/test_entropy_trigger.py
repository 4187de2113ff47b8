"""The entropy trigger, on cases worked by hand."""

from dataclasses import replace
from math import inf, log

import pytest

from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.loop import begin, decode
from specdec_lib.scores import RowStats
from specdec_lib.trees import stop_when_unlikely
from specdec_lib.types import NO_DICE, Budget, Draft, Method, Refusal, Round, Verdict
from specdec_lib.when.entropy_trigger import CARD, EntropyTrigger, decide, last_entropies
from specdec_lib.when.fixed import Fixed
from tests.worlds import PROMPT, TARGET, kit

COPY, MODEL = Budget.of("feedback-retrieval", 8, 8, 8), Budget.of("eagle2", 8, 8, 8)


def after(*rounds: tuple[float, ...]):
    """A session whose rounds emitted tokens from rows of these entropies."""
    session = begin((1, 2), 500)
    for entropies in rounds:
        path = tuple(range(len(entropies)))
        verdict = Verdict(path[1:], (7,) * len(entropies))
        row_stats = RowStats(None, None, path, (0.0,) * len(entropies), entropies)
        session = session.after(Round(Budget(), Draft(), row_stats, verdict, ()))
    return session


def test_the_window_of_least_cost_decides():
    # newest last: H1 = 0.3, H2 = 0.75, H3 = 2.5; with penalty 1 the costs are 1.3, 1.25 and 2.83
    assert decide((6.0, 1.2, .3), 3, 1.0, 1.5) == (True, 2)
    # H1 = 2, H2 = 1.25, H3 = 1; costs 3, 1.75, 1.33
    assert decide((.5, .5, 2.0), 3, 1.0, 1.5) == (True, 3)
    # H1 = 2.4, H2 = 2.2, H3 = 2.1: the cost of all three is least and their mean too high
    assert decide((1.9, 2.0, 2.4), 3, 1.0, 1.5) == (False, 3)


def test_without_a_penalty_the_lowest_mean_decides():
    assert decide((6.0, 1.2, .3), 3, 0.0, .3) == (True, 1)
    assert decide((0.0, .4, 2.0), 3, 0.0, .5) == (False, 3)          # H: 2, 1.2, 0.8
    assert decide((0.0, .4, 2.0), 3, 0.0, .8) == (True, 3)


def test_a_very_large_penalty_selects_the_longest_window():
    assert decide((6.0, 1.2, .3), 3, 1e9, 2.5) == (True, 3)
    assert decide((6.0, 1.2, .3), 3, 1e9, 2.49) == (False, 3)


def test_a_tie_goes_to_the_shorter_window():
    assert decide((1.0, 1.0, 1.0), 3, 0.0, 1.5) == (True, 1)
    assert decide((9.0, 2.0, 1.0), 2, 1.0, 1.5) == (True, 1)         # both costs are 2


def test_a_mean_equal_to_the_threshold_fires():
    assert decide((1.5,), 3, 1.0, 1.5) == (True, 1)
    assert decide((1.5001,), 3, 1.0, 1.5) == (False, 1)


def test_it_looks_back_at_most_look_back_tokens_and_no_further_than_they_exist():
    assert decide((0.0, 0.0, 9.0), 1, 0.0, 1.5) == (False, 1)
    assert decide((0.0, 3.0), 3, 1e9, 1.5) == (True, 2)
    assert decide((), 3, 1.0, inf) == (False, 0)


def test_entropies_come_from_the_last_tokens_across_rounds():
    session = after((.1, .2), (.3,), (.4, .5))
    assert last_entropies(session, 3) == (.3, .4, .5)
    assert last_entropies(session, 1) == (.5,)
    assert last_entropies(session, 9) == (.1, .2, .3, .4, .5)
    assert last_entropies(after(), 3) == ()


def test_it_reads_no_more_rounds_than_it_needs():
    class Rounds(tuple):
        def __reversed__(self):
            yield self[-1]
            raise AssertionError("it read more rounds than needed")

    session = after(*[(.1,)] * 50, (.2, .3, .4))
    assert last_entropies(replace(session, rounds=Rounds(session.rounds)), 3) == (.2, .3, .4)


def test_it_retrieves_at_low_entropy_and_uses_the_model_elsewhere():
    part = EntropyTrigger(COPY, MODEL)
    assert part(after((.1, .2, .3)), NO_DICE) == COPY.then(MODEL)
    assert part(after((3.0, 2.0, 4.0)), NO_DICE) == MODEL


def test_the_first_round_uses_the_model():
    assert EntropyTrigger(COPY, MODEL, threshold=inf)(after(), NO_DICE) == MODEL


def test_reading_query_matches_as_many_tokens_as_the_window_has():
    session = after((6.0, 1.2, .3))
    asked = COPY.each(lambda own: replace(own, notes={"query": 2})).then(MODEL)
    assert EntropyTrigger(COPY, MODEL, reading="query")(session, NO_DICE) == asked
    assert EntropyTrigger(COPY, MODEL)(session, NO_DICE).notes == {}


def test_it_reads_the_entropies_that_the_loop_recorded():
    last = list(decode(PROMPT, TARGET, *Method(Fixed(0), None, kit().part("match")), max_new_tokens=6))[-1]
    rows = [TARGET.logits(last.tokens[:place]).exp() for place in range(len(PROMPT), len(last.tokens))]
    true = [-float((p * p.log()).sum()) for p in rows]
    assert last_entropies(last, 3) == pytest.approx(true[-3:])


def test_normalised_it_fires_at_a_share_of_the_largest_entropy():
    part = CARD.make(Kit(None, TokenizerFacts(vocab=1000)), normalised=True)
    share = 1.5 / log(32_000)
    assert part(after((.99 * share * log(1000),)), NO_DICE).source == "feedback-retrieval"
    assert part(after((1.01 * share * log(1000),)), NO_DICE).source == "eagle2"
    assert CARD.make(Kit(None, TokenizerFacts(vocab=32_000)), normalised=True).penalty == pytest.approx(1 / log(32_000))


def test_its_budgets_come_from_the_kit():
    part = CARD.make(kit(nodes=6))
    assert part.retrieve == Budget.of("feedback-retrieval", 6, 8, 6)
    assert part.model == Budget.of("eagle2", 6, 8, 6)
    assert (part.look_back, part.penalty, part.threshold, part.reading) == (3, 1.0, 1.5, "switch")


def test_the_models_tree_has_its_own_sizes_and_stop_rule():
    part = CARD.make(Kit(None, nodes=6), depth=24, nodes=24, model_depth=5, model_width=4, model_nodes=6, least=0.4)
    assert part.retrieve == Budget.of("feedback-retrieval", 24, 8, 24)
    assert part.model == stop_when_unlikely(Budget.of("eagle2", 5, 4, 6), 0.4)


def test_parameters_override_the_kit():
    part = CARD.make(kit(nodes=6), retrieve="suffix-automaton", model="token-recycling", depth=4, width=2, nodes=5,
                     model_depth=3, model_width=7, threshold=.5)
    assert part.retrieve == Budget.of("suffix-automaton", 4, 2, 5)
    assert part.model == Budget.of("token-recycling", 3, 7, 5)
    assert part.threshold == .5


@pytest.mark.parametrize("wrong", [{"look_back": 0}, {"penalty": -1.0}, {"penalty": inf}, {"threshold": float("nan")},
                                   {"reading": "both"}, {"normalised": True}])
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal):
        CARD.make(Kit(None), **wrong)
