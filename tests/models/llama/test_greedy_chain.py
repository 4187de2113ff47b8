"""A greedy chain in one launch is the chain of one forward a token; its arithmetic runs here without a graph."""

import random
from dataclasses import replace

import pytest
import torch

from specdec_lib.loop import begin
from specdec_lib.models.llama import cache_pool
from specdec_lib.models.llama.cuda_graph import FIRST, CapturedStep
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.greedy_chain import LATE, chains, greedy_chain
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.sampling import Sampling
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft
from specdec_lib.what.draft_model import DraftModel
from tests.heads.captured_heads import words
from tests.heads.eagle_head import SHAPE, far

CLOSE = 1e-4
WEIGHTS = random_weights(replace(SHAPE, tied=True), seed=2)


@pytest.fixture(params=[False, True], ids=["all tokens", "some tokens"])
def pair(request):
    """(in one launch, token by token); with all output rows, or with those of every second token."""
    ids = torch.arange(0, SHAPE.vocab, 2)
    models = [Transformer(WEIGHTS, static=static) for static in (True, False)]
    return [model.restricted(ids) for model in models] if request.param else models


def grown(lm, text, count):
    """The chain that is asked token by token, and its scores."""
    draft = Draft()
    while len(draft) < count - 1:
        draft = Draft(draft.tokens + lm(text, draft).best[-1:], draft.parents + (len(draft) - 1,))
    return lm(text, draft)


def same(fixed, eager, text, count):
    mine, want = greedy_chain(fixed, text, count), grown(eager, text, count)
    assert mine.best == want.best
    assert mine.logits.shape == want.logits.shape
    assert far(mine.logits, want.logits) < CLOSE
    rows = tuple(range(count))
    assert mine.row_stats(rows, 3).tops[0] == want.row_stats(rows, 3).tops[0]
    assert mine.row_stats(rows).entropy == pytest.approx(want.row_stats(rows).entropy, abs=CLOSE)
    assert (fixed.forwards, fixed.fed) == (eager.forwards, eager.fed)
    return mine


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_over_rounds_the_chain_is_the_one_that_is_asked_token_by_token(pair, count):
    fixed, eager = pair
    dice, text = random.Random(count), words(20)
    for lm in pair:
        lm.prefill(text[:-1])
    for _ in range(12):
        drafted = same(fixed, eager, text, count).best
        text += drafted[:dice.randrange(count + 1)] + words(1, dice.random())
    assert [key[0] for key in fixed.lease.held.chains].count(count) == 1     # captured once


def test_rows_of_accepted_tokens_are_not_fed_again(pair):
    fixed, _ = pair
    text = words(20)
    for accepted in (0, 2, 5, 5, 3):
        drafted = greedy_chain(fixed, text, 5).best
        text, fed = text + drafted[:accepted] + words(1, accepted), fixed.fed
        greedy_chain(fixed, text, 5)
        assert fixed.fed - fed == (LATE if accepted == 5 else 1) + 4


def test_counts_that_change_and_texts_that_go_back_grow_by_many_or_start_anew(pair):
    fixed, eager = pair
    dice, text = random.Random(4), words(30)
    for _ in range(30):
        mine, want = greedy_chain(fixed, text, count := dice.choice((1, 3, 4, 9))), grown(eager, text, count)
        assert mine.best == want.best
        assert far(mine.logits, want.logits) < CLOSE
        text = dice.choice((text + words(1, dice.random()), text + words(11, dice.random()),
                            text[:dice.randrange(1, len(text) + 1)], words(3, dice.random())))


def test_chains_stand_between_scores_of_trees(pair):
    fixed, eager = pair
    text, tree = words(20), Draft((7, 8, 9, 10), (ROOT, ROOT, 0, 0))
    for turn in range(6):
        assert greedy_chain(fixed, text, 4).best == grown(eager, text, 4).best
        assert far(fixed(text, tree).logits, eager(text, tree).logits) < CLOSE
        text += (7, 9) if turn % 2 else words(3, turn)


def test_scores_after_a_chain_stay_when_the_next_step_overwrites_what_it_gave(pair, monkeypatch):
    places, plain = {}, CapturedStep.launch

    def launch(step):
        """A graph writes to the same place every time."""
        out = plain(step)
        for to, new in zip(places.setdefault(step, [part.clone() for part in out]), out, strict=True):
            to.copy_(new)
        return tuple(places[step])
    monkeypatch.setattr(CapturedStep, "launch", launch)
    fixed, _ = pair
    greedy_chain(fixed, words(20), 4)
    first = fixed(words(20), Draft((7,), (ROOT,))).logits
    want = first.clone()
    fixed(words(20), Draft((7, 8, 9), (ROOT, 0, 0)))
    assert torch.equal(first, want)


def test_chains_and_steps_for_other_taps_or_another_attention_are_captured_anew(pair):
    fixed, _ = pair
    held = fixed.lease.held
    before = len(held.chains)
    for taps, products in (((), True), ((1,), True), ((1,), False)):
        fixed.tap(taps)
        fixed.products = products
        greedy_chain(fixed, words(20), 7)
        fixed(words(20), Draft((1,) * 99, (ROOT,) * 99))
    assert len(held.chains) - before == 3
    assert len([key for key in held.steps if key[0] == 128]) == 3


def test_an_exit_with_a_head_of_its_own_has_steps_of_its_own(pair):
    fixed, _ = pair

    def head(x):
        return fixed.weights.head(-x)
    head.ids = fixed.ids
    plain, own = (fixed.fresh().exit(1, one)(words(20), Draft((1,), (ROOT,))).logits for one in (None, head))
    assert far(plain, own) > 0.1
    assert chains(fixed.fresh())                   # on the cache that the exits had


def test_a_cache_that_grows_drops_the_chains_that_know_its_old_place(pair, monkeypatch):
    monkeypatch.setattr(cache_pool, "ROWS", 512)
    fixed, eager = (lm.fresh() for lm in pair)
    held, text = fixed.lease.held, words(700)
    for size in (FIRST - 8, FIRST - 3, 500, 508, 700):       # more columns, then a larger cache
        assert greedy_chain(fixed, text[:size], 5).best == grown(eager, text[:size], 5).best
        assert all(chain.columns <= held.cache.capacity for chain in held.chains.values())
        assert all(chain.cache.kv.shape == held.cache.kv.shape for chain in held.chains.values())


def test_the_draft_of_a_method_is_that_of_one_forward_a_token(pair, monkeypatch):
    fixed, eager = pair
    session = begin(words(20), 30, end=frozenset((7, 12)))
    budgets = Budget(1), Budget(6), Budget(6, 1, 4), Budget(6, stop=lambda trail: len(trail) == 3), Budget(0)
    want = [DraftModel(eager)(session, budget, NO_DICE) for budget in budgets]
    launched = []
    monkeypatch.setattr(DraftModel, "at_once", lambda self, session: launched.append(session) or True)
    for budget, draft in zip(budgets, want, strict=True):
        mine = DraftModel(fixed)(session, budget, NO_DICE)
        assert (mine.tokens, mine.parents, mine.source) == (draft.tokens, draft.parents, draft.source)
        assert mine.confidence == pytest.approx(draft.confidence, abs=CLOSE)
    assert len(launched) == 4                      # nothing is asked for an empty budget


def test_only_a_model_of_captured_steps_that_has_its_cache_for_itself_is_asked_at_once(pair):
    fixed, eager = pair
    assert chains(fixed)
    assert not any(map(chains, (eager, fixed.exit(1), fixed.fresh(bidirectional=True), None)))
    fixed.cache.hidden = fixed.cache.stream()      # as an early exit leaves it
    assert not chains(fixed)
    fixed.cache.hidden = None
    session = begin(words(20), 30)
    assert not DraftModel(fixed).at_once(session)  # on a CPU nothing waits
    sampled = begin(words(20), 30, sampling=Sampling(0.7))
    assert not DraftModel(fixed).at_once(sampled)
