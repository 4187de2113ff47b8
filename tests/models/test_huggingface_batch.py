"""Rows of a batch through the model's own forward score as each text alone, whatever happens beside them."""

import random

import pytest
import torch
import transformers

from specdec_lib.models.huggingface_batch import BatchedHuggingFace

LIKE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 97,
        "initializer_range": 0.3}
CONFIGS = {
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**LIKE, bos_token_id=0, eos_token_id=0),
    "gpt2": lambda: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=97, n_positions=64,
                                            initializer_range=0.3, bos_token_id=0, eos_token_id=0),
    "gemma3": lambda: transformers.Gemma3TextConfig(**LIKE, num_key_value_heads=2, head_dim=8, sliding_window=8),
    "bloom": lambda: transformers.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=97,
                                              initializer_range=0.3)}


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    made = {}

    def one(name):
        if name not in made:
            torch.manual_seed(0)
            made[name] = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()
        return made[name]

    return one


def far(model, logits, texts) -> float:
    with torch.no_grad():
        want = torch.stack([model(torch.tensor([text]), use_cache=False).logits[0, -1] for text in texts])
    return float((logits - want).abs().max())


def words(dice, count):
    return [dice.randrange(97) for _ in range(count)]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_row_scores_as_its_text_alone_while_rows_are_filled_again_and_left_out(model, name):
    dice, batch = random.Random(1), BatchedHuggingFace(model(name))
    assert batch.rows is None
    texts = [words(dice, count) for count in (1, 12, 5)]
    batch.prefill([()] * 3)
    batch.prefill([text[:-1] for text in texts], [0, 1, 2])
    for change in (None, "fill", None, "keep", None):
        if change == "fill":                       # a shorter text and a longer one in rows that were in use
            texts[1], texts[0] = words(dice, 3), words(dice, 20)
            batch.prefill([texts[1][:-1], texts[0][:-1]], [1, 0])
        elif change == "keep":
            texts = [texts[2], texts[1]]
            batch.keep([2, 1])
        logits = batch.step(torch.tensor([text[-1] for text in texts]))
        assert far(model(name), logits, texts) < 1e-4
        assert all(size >= len(text) for size, text in zip(batch.sizes, texts, strict=True))
        for text in texts:
            text.append(dice.randrange(97))


def test_rows_that_are_over_may_run_on_beyond_the_context_and_change_nothing(model):
    batch = BatchedHuggingFace(model("gpt2"))
    batch.prefill([words(random.Random(0), 40), (3, 4)])
    text = [3, 4]
    for _ in range(40):
        text.append(5)
        logits = batch.step(torch.tensor([7, 5]), torch.tensor([False, True]))
    assert far(model("gpt2"), logits[1:], [text]) < 1e-4
    batch.keep([1])
    assert far(model("gpt2"), batch.step(torch.tensor([5])), [[*text, 5]]) < 1e-4


def test_the_cache_holds_no_more_columns_than_the_longest_text_after_rows_went(model):
    batch = BatchedHuggingFace(model("gpt_neox"))
    batch.prefill([(1,) * 30, (3, 4)])
    batch.keep([1])
    assert batch.past.get_seq_length() == 2


def test_a_model_that_does_not_obey_the_mask_runs_one_text_at_a_time(model, monkeypatch):
    neox = model("gpt_neox")
    whole = neox.forward
    monkeypatch.setattr(neox, "forward", lambda input_ids, past_key_values, use_cache, logits_to_keep, **_: whole(
        input_ids, past_key_values=past_key_values, use_cache=use_cache, logits_to_keep=logits_to_keep))
    assert BatchedHuggingFace(neox).rows == 1


def test_texts_that_do_not_fill_the_rows_are_an_error(model):
    batch = BatchedHuggingFace(model("gpt_neox"))
    with pytest.raises(ValueError, match="2 texts do not fill 1 rows"):
        batch.prefill([(1,), (2,)], [0])
    batch.prefill([(1,), (2,)])
    with pytest.raises(ValueError, match="1 tokens for 2 rows"):
        batch.step(torch.tensor([1]))
