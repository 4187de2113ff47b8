"""What a break-even times, and the costs that it adds up."""

import pytest

from specdec_lib.cost.break_even import break_even_of_part, costs_in_forwards, rates_on_card, time_drafter
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Budget, Method, Refusal
from tests.cost.ticks import Ticks
from tests.training.other_target import other_target
from tests.training.tiny import tiny_target

RATES = {"tokens_per_target_forward": 1.5}


def chains(depth: int, gives: int | None = None) -> Method:
    """A method that asks for chains of `depth` and drafts `gives` tokens."""
    return Method(when=lambda session, dice: Budget(depth),
                  what=lambda session, budget, dice: deterministic_chain(range(gives or depth)), how=None)


def test_seconds_are_medians_of_all_rounds_but_the_first_and_of_the_calls_they_are_named_after():
    lm, order = tiny_target(), []
    method = chains(3)

    def what(session, budget, dice):
        order.append(("draft", len(session.tokens), budget.depth))
        return method.what(session, budget, dice)

    class Target:
        context, vocab, prefill = lm.context, lm.vocab, lm.prefill

        def __call__(self, tokens, draft):
            before = lm.fed
            scores = lm(tokens, draft)
            order.append(("target", len(tokens), len(draft), lm.fed - before))
            return scores

    found = time_drafter(method._replace(what=what), Target(), 3, 20, 3,
                         Ticks(1, 9, 9, 9, 1, 1, 2, 4, 1, 3, 6, 4, 1, 2, 2, 4))
    assert order == 4 * [("draft", 20, 3), ("target", 20, 3, 4), ("target", 20, 0, 1)]
    assert found == {"draft_ms": 2000, "verify_ms": 2000, "plain_ms": 4000} | costs_in_forwards(0.5, 0.5)


def test_a_draft_that_is_too_short_is_refused():
    target = tiny_target()
    with pytest.raises(Refusal, match="a draft of 3 tokens was requested and the drafter gave 2"):
        time_drafter(chains(3, gives=2), target, 3, 20, 1)


def test_a_method_without_weights_has_no_expected_draft_cost():
    found = break_even_of_part(chains(3), tiny_target(), {}, {}, None, 3, 20, 1, Ticks(1, 3, 12, 10))
    assert found["expected"]["by weights read"] == costs_in_forwards(0, 1)
    assert found["measured"]["tokens_per_target_forward"] == 1.5


def test_nothing_is_expected_of_layers_that_are_not_counted():
    found = break_even_of_part(chains(3), other_target(), {}, {}, None, 3, 20, 1, Ticks(1, 3, 12, 10))
    assert found["expected"] is None
    assert found["measured"]["tokens_per_target_forward"] == 1.5


def test_the_card_gives_rates_of_its_own_parts_and_kinds_alone():
    measured = {"live": {"eagle": RATES}, "as trained": {"eagle": RATES}}
    assert rates_on_card(measured, "eagle") == {"live": 1.5}
    assert rates_on_card(measured, "exit 1") == {}
