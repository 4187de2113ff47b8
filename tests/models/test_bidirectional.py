"""Every row sees every row."""

import pytest
import torch

from specdec_lib.models.bidirectional import Bidirectional
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.types import Draft

SHAPE = LlamaConfig(layers=2, hidden=24, heads=4, kv_heads=2, head_dim=6, mlp=40, vocab=97, context=2048)
TEXT = (4, 9, 20, 31, 8)


def whole(dtype=torch.float64) -> Bidirectional:
    return Bidirectional(random_weights(SHAPE, seed=2, dtype=dtype))


def test_a_later_token_changes_every_row_and_an_earlier_answer_changes_none():
    model = whole()
    one, other = (model.run((*TEXT, last)) for last in (7, 8))
    assert ((one - other).abs().amax(-1) > 1e-4).all()
    model.run(tuple(range(60)))
    assert torch.equal(model.run((*TEXT, 7)), one)


def test_scores_do_not_depend_on_the_split_into_text_and_nodes():
    model, canvas = whole(), (*TEXT, 1, 2)
    scores = model(TEXT, Draft((1, 2), (-1, 0)))
    assert len(scores) == 3
    assert torch.allclose(scores.logits[-1], model(canvas, Draft()).logits[0])
    assert model.forwards == 2
    assert model.fed == 14


def test_texts_longer_than_its_first_cache_fit():
    long = tuple(int(i) % 97 for i in range(700))
    assert torch.allclose(whole().run(long), whole().run(long))
    assert whole().run(long).shape == (700, 24)


def test_half_precision_comes_close_and_gives_single_precision_logits():
    exact, half = (whole(dtype)(TEXT, Draft((1,), (-1,))).logits for dtype in (torch.float64, torch.bfloat16))
    assert half.dtype == torch.float32
    assert float((exact - half).abs().max()) < 0.1 * float(exact.std())


@pytest.mark.parametrize(("tokens", "draft", "sentence"), [
    ((), Draft(), "at least one token"), (TEXT, Draft((1, 2), (-1, -1)), "not trees")])
def test_no_token_and_trees_are_errors(tokens, draft, sentence):
    with pytest.raises(ValueError, match=sentence):
        whole()(tokens, draft)
