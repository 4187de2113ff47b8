"""A batch says of each of its rows what the single decoder says of that text alone."""

import pytest
import torch

from specdec_lib.models.llama import row_blocks
from specdec_lib.models.llama.batched import BatchedLlama, causal, draw, draws_for, length_groups
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.sampling import Sampling
from specdec_lib.types import Draft

SHAPE = LlamaConfig(layers=3, hidden=48, heads=6, kv_heads=2, head_dim=8, mlp=80, vocab=97, context=2048)
CLOSE = 1e-4


@pytest.fixture
def lm():
    torch.set_num_threads(1)
    return Transformer.random(SHAPE, seed=5)


@pytest.fixture(params=["blocks", "one block"])
def layout(request, monkeypatch):
    """Rows in blocks of a few, as on a CPU, or all in one, as on other devices."""
    if request.param == "one block":
        monkeypatch.setattr(row_blocks, "SIZE", {})


def alone(lm, tokens):
    """Logits [V] after a text, from the single decoder."""
    return lm.fresh()(tuple(tokens), Draft()).logits[0]


def started(lm, texts):
    batch = BatchedLlama(lm.weights)
    batch.prefill([text[:-1] for text in texts])
    return batch, torch.tensor([text[-1] for text in texts])


@pytest.mark.parametrize("family", ["llama", "llama linear", "qwen2", "qwen3", "smollm3"])
def test_rows_of_different_lengths_get_the_logits_they_get_alone(checkpoint, words, family):
    lm = Transformer.load(checkpoint(family).folder)
    texts = [words(n, seed=n) for n in (1, 40, 7)]
    batch, tokens = started(lm, texts)
    for _ in range(4):
        logits = batch.step(tokens)
        for text, row in zip(texts, logits, strict=True):
            assert (row - alone(lm, text)).abs().max() < CLOSE
        tokens = logits.argmax(-1)
        texts = [(*text, int(token)) for text, token in zip(texts, tokens, strict=True)]


@pytest.mark.usefixtures("layout")
def test_greedy_tokens_are_the_single_decoders_past_the_first_room_of_the_cache(lm, words):
    texts = [words(n, seed=n) for n in (5, 120)]
    batch, tokens = started(lm, texts)
    for _ in range(20):
        tokens = batch.step(tokens).argmax(-1)
        texts = [(*text, int(token)) for text, token in zip(texts, tokens, strict=True)]
    for text, size in zip(texts, (5, 120), strict=True):
        assert all(int(alone(lm, text[:n]).argmax()) == text[n] for n in range(size, len(text)))


@pytest.mark.usefixtures("layout")
def test_a_row_filled_anew_forgets_its_text_and_leaves_its_neighbours_alone(lm, words):
    texts = [words(9, seed=1), words(30, seed=2), words(4, seed=3)]
    batch, tokens = started(lm, texts)
    batch.step(tokens)
    texts = [(*texts[0], 11), words(12, seed=4), (*texts[2], 13)]
    batch.prefill([texts[1][:-1]], rows=[1])
    logits = batch.step(torch.tensor([text[-1] for text in texts]))
    for text, row in zip(texts, logits, strict=True):
        assert (row - alone(lm, text)).abs().max() < CLOSE


@pytest.mark.usefixtures("layout")
def test_rows_that_are_kept_go_on_and_rows_that_are_over_stay_as_long_as_they_are(lm, words):
    texts = [words(9, seed=1), words(30, seed=2), words(4, seed=3)]
    batch, tokens = started(lm, texts)
    batch.step(tokens, torch.tensor([True, False, True]))
    assert batch.lengths.tolist() == [9, 29, 4]
    batch.keep([2, 0])
    logits = batch.step(torch.tensor([17, 18]))
    assert (logits[0] - alone(lm, (*texts[2], 17))).abs().max() < CLOSE
    assert (logits[1] - alone(lm, (*texts[0], 18))).abs().max() < CLOSE
    assert batch.longest == 10


def test_rows_over_several_blocks_say_what_they_say_alone_sorted_shrunk_or_filled_anew(lm, words):
    texts = [words(3 + 17 * n % 150, seed=n) for n in range(20)]
    batch, tokens = started(lm, texts)
    assert len(batch.cache.blocks) == 3
    for rows in (sorted(range(20), key=lambda row: len(texts[row])), [19, 3, 4, 8, 0, 12, 13, 7, 1, 11], [2, 5]):
        for _ in range(30):                        # past the room of a block
            tokens = batch.step(tokens).argmax(-1)
            texts = [(*text, int(token)) for text, token in zip(texts, tokens, strict=True)]
        batch.keep(rows)
        texts, tokens = [texts[row] for row in rows], tokens[rows]
        texts[1] = words(9, seed=50)
        batch.prefill([texts[1][:-1]], rows=[1])
        tokens[1] = texts[1][-1]
    for text, row in zip(texts, batch.step(tokens), strict=True):
        assert (row - alone(lm, text)).abs().max() < CLOSE


def test_a_new_batch_takes_the_memory_of_the_one_before_and_nothing_else_of_it(lm, words):
    batch, tokens = started(lm, [words(90, seed=n) for n in range(9)])
    batch.step(tokens)
    before = {flat.data_ptr() for flat in batch.cache.memory}
    texts = [words(n, seed=n) for n in (20, 4, 7)]
    batch.prefill([text[:-1] for text in texts])
    assert {flat.data_ptr() for flat in batch.cache.memory} <= before
    for text, row in zip(texts, batch.step(torch.tensor([text[-1] for text in texts])), strict=True):
        assert (row - alone(lm, text)).abs().max() < CLOSE


def test_spare_memory_is_no_more_than_what_was_in_use(lm, words):
    batch, tokens = started(lm, [words(5 + 9 * n, seed=n) for n in range(20)])
    for n in range(100):
        tokens = batch.step(tokens).argmax(-1)
        if n % 10 == 0:
            batch.keep(list(range(20))[::-1])
        assert len(batch.cache.spare) <= 3 == len(batch.cache.blocks)


@pytest.mark.parametrize("length", [1, 127, 128, 129, 300])
def test_attention_by_tiles_sees_what_lies_before_and_nothing_else(length):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, length, 8) for heads in (6, 2, 2))
    wide = (part.repeat_interleave(3, 1) for part in (k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, *wide, is_causal=True, scale=1.0)
    assert (causal(q, k, v) - expected).abs().max() < 1e-5


def test_the_width_of_a_step_follows_the_longest_row_that_is_left(lm, words):
    batch, tokens = started(lm, [words(200, seed=1), words(4, seed=2)])
    batch.step(tokens)
    batch.prefill([words(6)], rows=[0])
    assert batch.longest == 6


@pytest.mark.parametrize("levels", [(0, 1, 3), (2,), (3, 0)])
def test_streams_of_padded_texts_are_the_features_of_each_text(lm, words, levels):
    texts = [words(n, seed=n) for n in (17, 3, 150)]
    for text, streams in zip(texts, BatchedLlama(lm.weights).streams(texts, levels), strict=True):
        one = lm.fresh()
        one.tap(levels)
        one.prefill(text)
        expected = one.features(text)
        assert streams.shape == expected.shape
        assert (streams - expected).abs().max() < CLOSE


def test_streams_can_be_learned_from(lm, words):
    weight = torch.ones(SHAPE.hidden, requires_grad=True)
    (BatchedLlama(lm.weights).streams([words(5)], (1,))[0] @ weight).sum().backward()
    assert weight.grad is not None


def test_bfloat16_stays_near_its_single_decoder(words):
    lm = Transformer.random(SHAPE, seed=5, dtype=torch.bfloat16)
    texts = [words(n, seed=n) for n in (30, 8)]
    batch, tokens = started(lm, texts)
    for text, row in zip(texts, batch.step(tokens), strict=True):
        assert (row.float() - alone(lm, text).float()).abs().max() < 0.15


def test_groups_hold_every_text_once_and_no_more_padded_tokens_than_asked():
    sizes = [5, 90, 7, 30, 31, 1, 400]
    found = list(length_groups(sizes, tokens=100))
    assert sorted(i for group in found for i in group) == list(range(len(sizes)))
    assert all(len(group) == 1 or len(group) * max(sizes[i] for i in group) <= 100 for group in found)
    assert len(found) < len(sizes)


def test_bad_input_is_refused(lm):
    with pytest.raises(ValueError, match="levels lie between 0 and 3"):
        BatchedLlama(lm.weights).streams([(1, 2)], (4,))
    with pytest.raises(ValueError, match="without tokens"):
        BatchedLlama(lm.weights).streams([(1, 2), ()], (1,))
    with pytest.raises(ValueError, match="do not fill"):
        BatchedLlama(lm.weights).prefill([(1,)], rows=[0, 1])
    with pytest.raises(ValueError, match="3 tokens for 2 rows"):
        started(lm, [(1, 2), (3, 4)])[0].step(torch.tensor([1, 2, 3]))


def test_drawing_at_temperature_0_takes_the_best_beside_rows_that_are_drawn():
    logits = torch.tensor([[0.0, 3.0, 1.0], [0.0, 3.0, 1.0]])
    coins = torch.full((2, 1), 0.999)
    assert draw(logits, torch.tensor([0.0, 1.0]), coins).tolist() == [1, 2]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.98), (1.0, 0.6)])
def test_drawing_follows_the_law_of_sampling(temperature, top_p):
    torch.manual_seed(0)
    logits = torch.randn(12) * 2
    dist = Sampling(temperature, top_p=top_p).distribution(logits)
    expected = torch.zeros(12).index_add(0, dist.ids, dist.probs)
    count = 40_000
    coins = torch.rand(count, draws_for(top_p))
    drawn = draw(logits.expand(count, -1), torch.full((count,), temperature), coins, top_p)
    found = torch.bincount(drawn, minlength=12) / count
    assert (found - expected).abs().max() < 0.01
    assert not found[expected == 0].any()


def test_coins_suffice_for_the_nucleus():
    assert draws_for(1.0) == 1
    assert 0.02 ** draws_for(0.98) <= 1e-9 < 0.02 ** (draws_for(0.98) - 1)
