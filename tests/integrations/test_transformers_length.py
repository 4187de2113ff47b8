"""Texts that come near the end of a model's context, or go beyond it, inside transformers."""

import pytest
import torch
import transformers

from specdec_lib.integrations.transformers import Speculative
from tests.integrations.tiny import PROMPT, ids


class StopAtLength(transformers.StoppingCriteria):
    """Stops once a text has so many tokens, as an end token would."""

    def __init__(self, length: int):
        self.length = length

    def __call__(self, input_ids, scores, **more):
        return torch.tensor([input_ids.shape[1] >= self.length])


@pytest.mark.parametrize("method", ["sam", "token-recycling", "pearl"])
@pytest.mark.parametrize("start", [22, 28, 32])
def test_no_draft_reads_behind_the_end_of_a_table_of_positions(method, start):
    torch.manual_seed(3)
    sizes = {"vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 32, "eos_token_id": None}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    given = {"inputs": ids((PROMPT * 3)[:start]), "do_sample": False, "max_new_tokens": 40,
             "stopping_criteria": [StopAtLength(33)]}                    # the last token is fed nowhere
    plug = Speculative(method, draft=model if method == "pearl" else None)
    assert torch.equal(model.generate(**given, custom_generate=plug), model.generate(**given))
    with pytest.raises(IndexError):                                      # of transformers, and so is ours
        model.generate(**{**given, "stopping_criteria": []}, custom_generate=plug)


def test_a_text_that_outgrows_the_context_goes_on_as_in_transformers():
    torch.manual_seed(3)
    sizes = {"vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
             "num_attention_heads": 4, "max_position_embeddings": 32}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, eos_token_id=None)).eval()
    for start in (22, 40):
        given = {"inputs": ids((PROMPT * 4)[:start]), "do_sample": False, "max_new_tokens": 30,
                 "return_dict_in_generate": True, "output_logits": True}
        want, got = model.generate(**given), model.generate(**given, custom_generate=Speculative("sam"))
        assert torch.equal(got.sequences, want.sequences)
        assert torch.allclose(torch.cat(got.logits), torch.cat(want.logits), atol=1e-4)
        assert got.session.remaining == 0
        assert len(got.session.output) == 30
