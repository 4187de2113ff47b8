"""Both sides of a break-even: what is timed, in what it is told, and what it adds up to."""

from types import SimpleNamespace

import pytest
import torch

from specdec_lib.cost.break_even import DRAFTERS, break_even, costs_in_forwards, method_of, rates_on_card, time_drafter
from specdec_lib.models.ngram import Ngram
from specdec_lib.training.data.ngram_counts import count
from specdec_lib.training.recipes import recipe, start
from specdec_lib.types import Refusal
from tests.training.lessons import checkpoint, ready
from tests.training.tiny import tiny_target

RATES = {"tokens_per_target_forward": 1.5}


@pytest.fixture(scope="module")
def target():
    return tiny_target(layers=6)


def stored(target, name: str):
    ids = torch.arange(0, 40, 2)
    return checkpoint(name, start(ready(name, target, ids), target, SimpleNamespace(ids=ids)))


class Ticks:
    """Seconds that jump by what is next in a list, over and over."""

    def __init__(self, *steps: float):
        self.steps, self.calls, self.now = steps, 0, 0.0

    def __call__(self) -> float:
        self.now += self.steps[self.calls % len(self.steps)]
        self.calls += 1
        return self.now


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name != "ngram"])
def test_every_drafter_has_both_sides_next_to_what_it_reached(target, name):
    kept = stored(target, name)
    parts = [part or name for part in recipe(name).parts(kept.meta)]
    measured = {"teacher-forced": {part: RATES for part in parts}, "as it starts": {part: RATES for part in parts}}
    found = break_even(name, kept, target, measured, {"threads": 1}, context=24, repeats=1, clock=Ticks(1, 3, 12, 10))
    assert [key for key, value in found.items() if isinstance(value, dict)] == parts
    assert found["threads"] == 1
    assert found["context"] == 24
    assert found["depth"] == 5
    for part in parts:
        sides = found[part]["expected"]["by weights read"], found[part]["expected"]["by multiplications"]
        assert 0 < sides[0]["draft"] < sides[1]["draft"] or name == "early-exit"
        assert sides[0]["verify"] == 1
        assert 2 < sides[1]["verify"] <= 6
        assert found[part]["measured"] == {"draft_ms": 3000, "verify_ms": 12000, "plain_ms": 10000, "draft": 0.3,
                                           "verify": 1.2, "tokens_per_target_forward": 1.5}
        assert found[part]["reached"] == {"teacher-forced": 1.5}


def test_a_table_costs_nothing_on_paper_and_is_timed_like_the_others(target):
    model = Ngram(count([tuple(range(40)), (1, 2, 3) * 5, (1, 2, 3) * 5], 40))
    found = break_even("ngram", model, target, {}, {}, context=24, repeats=1, clock=Ticks(1, 3, 12, 10))["ngram"]
    assert found["expected"]["by weights read"] == costs_in_forwards(0, 1)
    assert found["measured"]["draft"] == 0.3
    assert found["reached"] == {}


def test_seconds_are_medians_of_all_rounds_but_the_first_and_of_the_calls_they_are_named_after(target):
    lm, order = target.fresh(), []
    method = method_of("diffusion-lm", "", stored(target, "diffusion-lm"), lm, 3)

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


def test_rates_stand_only_beside_the_depth_they_were_measured_at(target):
    measured = {"live": {"eagle": RATES}, "as trained": {"eagle": RATES}}
    kept = stored(target, "eagle")
    assert rates_on_card(measured, "eagle") == {"live": 1.5}
    assert rates_on_card(measured, "exit 1") == {}
    found = break_even("eagle", kept, target, measured, {}, depth=3, context=24, repeats=1)
    assert found["eagle"]["reached"] == {}


@pytest.mark.parametrize(("change", "sentence"), [
    ({"depth": 0}, "depth and repeats of at least 1"), ({"repeats": 0}, "depth and repeats of at least 1"),
    ({"context": 2}, "a context above 2"), ({"depth": 9}, "a draft of 9 was asked for and one of 8 came"),
    ({"name": "diffusion-lm-full"}, "diffusion-lm-full is no drafter"),
    ({"name": "medusa"}, "medusa is no drafter that is trained here; there are: eagle")], ids=str)
def test_what_cannot_be_drafted_is_refused(target, change, sentence):
    words = {"name": "block-diffusion", "depth": 5, "context": 24, "repeats": 1} | change
    with pytest.raises(Refusal, match=sentence):
        break_even(words.pop("name"), stored(target, "block-diffusion"), target, {}, {}, **words)


def test_a_context_is_at_most_half_of_what_the_target_holds(target):
    found = break_even("eagle", stored(target, "eagle"), target, {}, {}, context=9999, repeats=1)
    assert found["context"] == 128
