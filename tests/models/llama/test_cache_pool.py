"""Captured steps outlive a decode: the next prompt has the cache and the steps of the last one."""

import pytest

from specdec_lib.models.llama import cache_pool
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import Draft


@pytest.fixture
def weights(checkpoint):
    return Transformer.load(checkpoint("llama3").folder).weights


def decoded(lm, text, taps=()):
    """A decode that taps after the model was made, as drafters do."""
    lm.tap(taps)
    lm.prefill(text[:-1])
    return lm(text, Draft((5, 6, 5), (-1, 0, -1))).logits.clone()


def test_the_next_decode_captures_nothing_anew_and_sees_nothing_of_the_last(weights, words):
    base = Transformer(weights, static=True)
    first = base.fresh()
    decoded(first, words(60, seed=1), (1, 3))
    steps = dict(first.steps)
    del first
    second = base.fresh()
    assert decoded(second, words(60), (1, 3)).equal(decoded(Transformer(weights, static=True), words(60), (1, 3)))
    assert steps
    assert dict(second.steps) == steps


def test_two_decodes_at_once_have_caches_of_their_own(weights, words):
    base = Transformer(weights, static=True)
    one, two = base.fresh(), base.fresh()
    alone = decoded(one, words(30))
    decoded(two, words(30, seed=2))
    assert one.cache is not two.cache
    assert one(words(30), Draft((5, 6, 5), (-1, 0, -1))).logits.equal(alone)


def test_an_early_exit_keeps_the_cache_of_a_model_that_is_gone(weights):
    base = Transformer(weights, static=True)
    early = base.exit(1)
    held = early.cache
    del base
    assert Transformer(weights, static=True).cache is not held
    del early
    assert Transformer(weights, static=True).cache is held


def test_a_cache_that_only_a_cycle_holds_goes_to_the_next_decode(weights):
    lm = Transformer(weights, static=True)
    held, lm.itself = lm.cache, lm
    del lm
    assert Transformer(weights, static=True).cache is held


def test_a_cache_that_grows_drops_the_steps_that_know_its_old_place(weights, words, monkeypatch):
    monkeypatch.setattr(cache_pool, "ROWS", 512)
    fixed, plain = Transformer(weights, (2,), static=True), Transformer(weights, (2,))
    text = words(700)
    for size in (100, 430, 441, 700):
        assert abs(fixed(text[:size], Draft((1, 2), (-1, -1))).logits
                   - plain(text[:size], Draft((1, 2), (-1, -1))).logits).max() < 1e-4
    assert fixed.cache.capacity == 1024
    assert all(step.cache.capacity == 1024 and step.rope is fixed.rope for step in fixed.steps.values())
