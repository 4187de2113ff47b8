"""The break-even of every trained drafter: expected and measured costs beside the rates of its card."""

from types import SimpleNamespace

import pytest
import torch

from specdec_lib.cost.break_even import costs_in_forwards
from specdec_lib.models.ngram import Ngram
from specdec_lib.training.data.ngram_counts import count_ngrams
from specdec_lib.training.eval.break_even import DRAFTERS, break_even
from specdec_lib.training.recipes import recipe, start
from specdec_lib.types import Refusal
from tests.cost.ticks import Ticks
from tests.training.lessons import checkpoint, ready
from tests.training.tiny import tiny_target

RATES = {"tokens_per_target_forward": 1.5}


@pytest.fixture(scope="module")
def target():
    return tiny_target(layers=6)


def stored(target, name: str):
    ids = torch.arange(0, 40, 2)
    return checkpoint(name, start(ready(name, target, ids), target, SimpleNamespace(ids=ids)))


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name != "ngram"])
def test_every_drafter_has_expected_and_measured_costs_and_reached_rates(target, name):
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


def test_a_table_has_no_expected_draft_cost_and_is_timed_like_the_others(target):
    model = Ngram(count_ngrams([tuple(range(40)), (1, 2, 3) * 5, (1, 2, 3) * 5], 40))
    found = break_even("ngram", model, target, {}, {}, context=24, repeats=1, clock=Ticks(1, 3, 12, 10))["ngram"]
    assert found["expected"]["by weights read"] == costs_in_forwards(0, 1)
    assert found["measured"]["draft"] == 0.3
    assert found["reached"] == {}


def test_rates_of_the_card_appear_only_at_the_depth_they_were_measured_at(target):
    measured = {"live": {"eagle": RATES}, "as trained": {"eagle": RATES}}
    kept = stored(target, "eagle")
    found = break_even("eagle", kept, target, measured, {}, depth=3, context=24, repeats=1)
    assert found["eagle"]["reached"] == {}


@pytest.mark.parametrize(("change", "sentence"), [
    ({"depth": 0}, "depth and repeats of at least 1"), ({"repeats": 0}, "depth and repeats of at least 1"),
    ({"context": 2}, "a context above 2"), ({"depth": 9}, "a draft of 9 tokens was requested and the drafter gave 8"),
    ({"name": "diffusion-lm-full"}, "diffusion-lm-full is no drafter"),
    ({"name": "medusa"}, "medusa is no drafter that is trained here; there are: eagle")], ids=str)
def test_what_cannot_be_drafted_is_refused(target, change, sentence):
    words = {"name": "block-diffusion", "depth": 5, "context": 24, "repeats": 1} | change
    with pytest.raises(Refusal, match=sentence):
        break_even(words.pop("name"), stored(target, "block-diffusion"), target, {}, {}, **words)


def test_a_context_is_at_most_half_of_what_the_target_holds(target):
    found = break_even("eagle", stored(target, "eagle"), target, {}, {}, context=9999, repeats=1)
    assert found["context"] == 128
