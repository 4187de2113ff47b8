"""A shared forward says of each sequence what it would score alone, whatever its length, draft and acceptance."""

import pytest
import torch

from specdec_lib.models.llama import weights
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.joint import member, score_together
from specdec_lib.models.llama.packed_linear import PackedLinear
from specdec_lib.types import Draft

SHAPE = LlamaConfig(layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, mlp=96, vocab=97, context=2048)
CLOSE = 1e-4


@pytest.fixture
def lm():
    torch.set_num_threads(1)
    return Transformer.random(SHAPE, seed=5)


def off(one, other) -> float:
    return float((one.logits - other.logits).abs().max())


@pytest.mark.parametrize("chain", [True, False], ids=["chains", "trees"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_ragged_drafts_accepted_and_taken_back_score_as_alone(lm, rounds, count, chain):
    shared, alone = [member(lm) for _ in range(count)], [lm.fresh() for _ in range(count)]
    texts = [rounds(7 * place + count, 6, start=3 + 11 * place, chain=chain) for place in range(count)]
    for turn, asked in enumerate(zip(*texts, strict=True)):
        found = score_together([(model, *one) for model, one in zip(shared, asked, strict=True)])
        for place, (model, (tokens, draft), scores) in enumerate(zip(alone, asked, found, strict=True)):
            assert len(scores) == 1 + len(draft)
            assert off(scores, model(tokens, draft)) < CLOSE, (turn, place)


@pytest.mark.parametrize("family", ["llama linear", "qwen2", "qwen3", "smollm3"])
def test_biases_and_head_norms_of_every_family_are_applied(checkpoint, words, family):
    lm = Transformer.load(checkpoint(family).folder)
    asked = [(words(n, seed=n), Draft(words(k, seed=k), tuple(range(-1, k - 1)))) for n, k in ((1, 2), (30, 0), (9, 4))]
    found = score_together([(member(lm), *one) for one in asked])
    for (tokens, draft), scores in zip(asked, found, strict=True):
        assert off(scores, lm.fresh()(tokens, draft)) < CLOSE


def test_weights_are_multiplied_once_with_the_rows_of_all_sequences(words, monkeypatch):
    monkeypatch.setattr(weights, "dense_code", lambda dtype: None)         # a call for every product
    lm = Transformer.random(SHAPE, seed=4)
    models = [member(lm) for _ in range(3)]
    for place, model in enumerate(models):
        model.prefill(words(10 + place, seed=place)[:-1])
    fed, call = [], PackedLinear.__call__
    monkeypatch.setattr(PackedLinear, "__call__", lambda layer, x: fed.append(len(x)) or call(layer, x))
    score_together([(model, words(10 + place, seed=place), Draft((1,) * place, tuple(range(-1, place - 1))))
                    for place, model in enumerate(models)])
    assert fed == [1 + 2 + 3] * (4 * SHAPE.layers + 1)                     # four products a layer, and the head
    assert [(model.forwards, model.fed) for model in models] == [(2, 10 + 2 * place) for place in range(3)]


def test_what_a_sequence_has_just_asked_costs_no_forward(lm, words):
    one, other = member(lm), member(lm)
    draft = Draft((4, 5), (-1, 0))
    first = score_together([(one, words(6), draft), (other, words(4, 1), Draft())])
    again = score_together([(one, words(6), draft), (other, words(4, 1), Draft((7,), (-1,)))])
    assert (one.forwards, other.forwards) == (1, 2)
    assert torch.equal(first[0].logits, again[0].logits)
    assert len(again[1]) == 2


def test_taps_are_those_of_a_decode_alone(lm, words):
    lm.tap((0, 1, 2))
    models = [member(lm), member(lm)]
    texts = [words(8, 1), words(21, 2)]
    score_together([(model, text, Draft()) for model, text in zip(models, texts, strict=True)])
    for model, text in zip(models, texts, strict=True):
        alone = lm.fresh()
        alone(text, Draft())
        assert model.features(text).shape == (len(text), 3, SHAPE.hidden)
        assert (model.features(text) - alone.features(text)).abs().max() < CLOSE


def test_a_long_gap_is_fed_alone_before_the_shared_forward(lm, words):
    long, short = member(lm), member(lm)
    text = words(1200)
    found = score_together([(long, text, Draft()), (short, words(3, 1), Draft((5,), (-1,)))])
    assert off(found[0], lm.fresh()(text, Draft())) < CLOSE
    assert (long.fed, short.fed) == (1200, 4)
    assert long.forwards > 1 == short.forwards


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=["bf16", "fp32", "fp64"])
def test_no_row_has_other_bits_where_the_decoder_promises_that(rounds, dtype):
    lm = Transformer.random(SHAPE, seed=6, dtype=dtype)
    shared, alone, rows, other = [member(lm) for _ in range(4)], [lm.fresh() for _ in range(4)], 0, 0
    for asked in zip(*(rounds(40 + place, 5, start=4 + 9 * place) for place in range(4)), strict=True):
        found = score_together([(model, *one) for model, one in zip(shared, asked, strict=True)])
        for model, (tokens, draft), scores in zip(alone, asked, found, strict=True):
            same = (scores.logits == model(tokens, draft).logits).all(-1)
            rows, other = rows + len(same), other + int((~same).sum())
    assert rows > 40
    assert other == 0 or not lm.batch_invariant, f"{other} of {rows} rows differ"


def test_strangers_and_models_with_a_cache_of_another_kind_are_refused(lm, words):
    one, asked = member(lm), (words(4), Draft())
    for other, why in ((one, "once"), (member(Transformer.random(SHAPE, seed=9)), "same weights"),
                       (lm.exit(1), "take `member`"), (lm.fresh(bidirectional=True), "take `member`")):
        with pytest.raises(ValueError, match=why):
            score_together([(one, *asked), (other, *asked)])
    with pytest.raises(ValueError, match="at least one token"):
        score_together([(one, (), Draft())])


def test_a_sequence_with_rows_that_left_early_is_refused_before_anything_is_fed(lm, words):
    early = member(lm)
    early.exit(1)(words(5), Draft())
    with pytest.raises(ValueError, match="left the model early"):
        score_together([(early, words(5) + (3,), Draft())])
