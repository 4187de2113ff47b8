"""Two stages of a decoder, one after the other, compute exactly what the whole decoder computes."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.models.llama.decoder import CHUNK, Transformer
from specdec_lib.models.llama.stages import enter, leaving_states
from specdec_lib.types import Draft, Refusal
from tests.worlds import SHAPE

FOUR = replace(SHAPE, layers=4, context=2048)
PROMPT = (0, 1, 2, 0, 1, 1, 2)


@pytest.fixture
def target():
    return Transformer.random(FOUR, seed=2, dtype=torch.float64)


class TwoStages:
    """A decoder cut above a layer: `logits(tokens)` feeds the first stage what it lacks, and hands the rows upwards."""

    def __init__(self, target: Transformer, layer: int):
        self.first, self.second, self.layer = target.exit(layer).fresh(), target.fresh(), layer

    def logits(self, tokens: tuple[int, ...], start: int) -> torch.Tensor:
        """Logits after the last token; rows from `start` on are handed upwards."""
        self.first.prefill(tokens)
        enter(self.second, tokens, leaving_states(self.first, start), self.layer)
        return self.second(tokens, Draft()).logits


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_logits_of_two_stages_are_those_of_the_whole_to_the_last_bit(target, layer):
    cut, whole = TwoStages(target, layer), target.fresh()
    assert torch.equal(cut.logits(PROMPT, 0), whole(PROMPT, Draft()).logits)
    text = PROMPT
    for token in (2, 2, 0, 1, 0):
        text += (token,)
        assert torch.equal(cut.logits(text, len(text) - 1), whole(text, Draft()).logits)


def test_no_layer_computes_a_row_of_the_other_stage(target):
    cut = TwoStages(target, 1)
    cut.logits(PROMPT, 0)
    assert (cut.first.fed, cut.second.fed) == (len(PROMPT), 0), "the second stage embeds nothing"
    assert not cut.first.cache.kv[1:].any()
    assert not cut.second.cache.kv[:1].any()
    assert cut.second.cache.kv[1:].any()


def test_after_other_tokens_both_caches_hold_the_text_alone(target):
    cut = TwoStages(target, 2)
    for text in (PROMPT, PROMPT + (1,), PROMPT + (1, 1)):
        cut.logits(text, len(text) - 1 if len(text) > len(PROMPT) else 0)
    other = PROMPT + (2,)
    whole = target.fresh()
    whole(PROMPT, Draft())
    assert torch.equal(cut.logits(other, len(other) - 1), whole(other, Draft()).logits)
    assert len(cut.first.cache.rows) == len(cut.second.cache.rows) == len(other)


def test_states_that_enter_again_replace_the_rows_that_are_there(target):
    cut = TwoStages(target, 2)
    cut.logits(PROMPT, 0)
    enter(cut.second, PROMPT, leaving_states(cut.first, 3), 2)
    assert len(cut.second.cache.rows) == len(PROMPT)
    whole, longer = target.fresh(), PROMPT + (2,)
    whole(PROMPT, Draft())
    cut.second.prefill(PROMPT)
    assert torch.allclose(cut.logits(longer, len(PROMPT)), whole(longer, Draft()).logits, atol=1e-12)


def test_a_prompt_of_several_chunks_passes_both_stages(target):
    text = tuple(i * i % 3 for i in range(CHUNK + 90))
    cut, whole = TwoStages(target, 3), target.fresh()
    assert torch.allclose(cut.logits(text, 0), whole(text, Draft()).logits, atol=1e-12)
    assert cut.second.cache.capacity > CHUNK, "the cache has grown while states lay in it"


def test_states_that_left_are_a_copy_that_later_rows_do_not_change(target):
    cut = TwoStages(target, 1)
    cut.logits(PROMPT, 0)
    before = leaving_states(cut.first, 0)
    kept = before.clone()
    cut.first.prefill((2, 2, 2))
    assert torch.equal(before, kept)
    assert len(leaving_states(cut.first, 1)) == 2


def test_rows_that_never_came_are_missed(target):
    cut = TwoStages(target, 1)
    cut.first.prefill(PROMPT)
    with pytest.raises(ValueError, match="from 3 on, and the stage above has only 0"):
        enter(cut.second, PROMPT, leaving_states(cut.first, 3), 1)


def test_a_model_of_all_layers_is_no_first_stage(target):
    with pytest.raises(ValueError, match="all 4 layers"):
        leaving_states(target, 0)


@pytest.mark.parametrize(("taps", "refused"), [((1, 3), True), ((2,), True), ((3, 4), False)])
def test_hidden_states_that_only_the_first_stage_has_are_refused_and_others_are_kept(target, taps, refused):
    cut, whole = TwoStages(target, 2), target.fresh()
    cut.second.tap(taps)
    if refused:
        with pytest.raises(Refusal, match=f"hidden states of layer {taps[0]} are asked for"):
            cut.logits(PROMPT, 0)
        return
    cut.logits(PROMPT, 0)
    whole.tap(taps)
    whole(PROMPT, Draft())
    assert torch.equal(cut.second.features(PROMPT), whole.features(PROMPT))
