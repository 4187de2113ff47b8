"""What a call of transformers' `generate` asks for, as our loop understands it; what we do not honour is refused.

Knows transformers' configuration, processors and criteria, and no model of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.generation.configuration_utils import GenerationConfig, GenerationMode
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.stopping_criteria import StoppingCriteriaList

from specdec_lib.sampling import Sampling
from specdec_lib.types import Refusal

MODES = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
FILTERS = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)      # in the order in which ours apply
OWN = ("use_cache", "logits_to_keep", "cache_position")      # what `generate` itself prepares, and changes no token
OFF = {"RepetitionPenaltyLogitsProcessor": "repetition_penalty=1.0", "TypicalLogitsWarper": "typical_p=1.0",
       "NoRepeatNGramLogitsProcessor": "no_repeat_ngram_size=0", "EpsilonLogitsWarper": "epsilon_cutoff=0.0",
       "EtaLogitsWarper": "eta_cutoff=0.0"}        # what switches off an option that the model's own files set
INSTEAD = "leave it out, or generate without custom_generate"


@dataclass(frozen=True)
class GenerationRequest:
    """One sequence to continue; `sampling` None is greedy, `end` are the tokens that a stopping criterion names."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    end: frozenset[int]
    sampling: Sampling | None


def request_of(model, input_ids: Tensor, processors: LogitsProcessorList, criteria: StoppingCriteriaList,
               config: GenerationConfig, model_kwargs: Mapping[str, Any]) -> GenerationRequest:
    """The request of a call, checked; Refusal that names the first thing which is not supported."""
    refuse_mode(model, input_ids, config)
    refuse_outputs(config)
    refuse_inputs(input_ids, config, model_kwargs)
    sampling = sampling_of(processors, bool(config.do_sample))
    longest = criteria.max_length or config.max_length
    return GenerationRequest(tuple(input_ids[0].tolist()), longest - input_ids.shape[1], end_of(criteria), sampling)


def refuse_mode(model, input_ids: Tensor, config: GenerationConfig) -> None:
    """Refuses beams, batches, encoders, and every mode besides greedy search and sampling."""
    mode = config.get_generation_mode()
    if mode not in MODES:
        raise Refusal(f"the generation mode {mode.value} is not supported by a speculative custom_generate, which does"
                      " greedy search and sampling of one sequence: take num_beams=1 and no other mode's options")
    if model.config.is_encoder_decoder:
        raise Refusal(f"{type(model).__name__} is an encoder-decoder model, and a speculative custom_generate decodes"
                      " causal language models alone")
    if len(input_ids) != 1:
        raise Refusal(f"a batch of {len(input_ids)} sequences (num_return_sequences counts) is not supported by a"
                      " speculative custom_generate: give one sequence at a time")


def refuse_outputs(config: GenerationConfig) -> None:
    """Refuses outputs that a forward over a draft does not give token by token."""
    for name in ("output_attentions", "output_hidden_states"):
        if config.return_dict_in_generate and getattr(config, name):
            raise Refusal(f"{name} is not supported by a speculative custom_generate, whose forwards hold drafted"
                          f" tokens as well: {INSTEAD}")


def refuse_inputs(input_ids: Tensor, config: GenerationConfig, model_kwargs: Mapping[str, Any]) -> None:
    """Refuses caches of the caller's, padding, other positions, and inputs besides token ids."""
    if config.cache_implementation is not None:
        raise Refusal(f"cache_implementation={config.cache_implementation!r} is not supported by a speculative"
                      " custom_generate, which keeps a cache of its own: leave it out (if it comes from the model's"
                      " generation_config, pass cache_implementation=None), or generate without custom_generate")
    given = {name: value for name, value in model_kwargs.items() if value is not None and name not in OWN}
    past, mask, positions = (given.pop(name, None) for name in ("past_key_values", "attention_mask", "position_ids"))
    if given:
        raise Refusal(f"the input {', '.join(given)} is not supported by a speculative custom_generate, which feeds"
                      " token ids alone: leave it out")
    if past is not None and (getattr(past, "_is_user_defined", False) or past.get_seq_length()):
        raise Refusal("past_key_values is not supported by a speculative custom_generate, which keeps a cache of its"
                      f" own: {INSTEAD}")
    if mask is not None and not bool((mask == 1).all()):
        raise Refusal("an attention_mask with zeros is not supported by a speculative custom_generate: give the"
                      " sequence without padding")
    if positions is not None and not torch.equal(positions[0].cpu(), torch.arange(input_ids.shape[1])):
        raise Refusal("position_ids that do not count from 0 are not supported by a speculative custom_generate: leave"
                      " them out")


def sampling_of(processors: Iterable[Any], do_sample: bool) -> Sampling | None:
    """Temperature, top-k and top-p of these processors, None for greedy search; Refusal for any other processor.

    Each may stand there once, in this order, with its usual filter value. Without `do_sample` none of the three moves
    the likeliest token, so they have no effect, as in transformers.
    """
    found: dict[type, Any] = {}
    for one in processors:
        if type(one) not in FILTERS or any(FILTERS.index(kind) >= FILTERS.index(type(one)) for kind in found):
            raise Refusal(f"the logits processor {type(one).__name__} is not supported here by a speculative"
                          " custom_generate, which applies temperature, then top_k, then top_p, once each: leave it out"
                          f"{unset(type(one))}, or generate without custom_generate")
        if getattr(one, "filter_value", -float("inf")) != -float("inf") or getattr(one, "min_tokens_to_keep", 1) > 1:
            raise Refusal(f"a {type(one).__name__} with a filter_value or min_tokens_to_keep of its own is not"
                          " supported by a speculative custom_generate: give top_k and top_p as numbers")
        found[type(one)] = one
    if not do_sample:
        return None
    values: dict[str, Any] = {"temperature": 1.0} | {name: getattr(found[kind], name) for kind, name in
                                     zip(FILTERS, ("temperature", "top_k", "top_p"), strict=True) if kind in found}
    return Sampling(**values)


def unset(kind: type) -> str:
    """How to leave out a processor that the caller may never have asked for; nothing where ours apply it once."""
    how = f"pass {OFF[kind.__name__]}" if kind.__name__ in OFF else "clear its option there"
    return "" if kind in FILTERS else f" (if it comes from the model's generation_config, {how})"


def end_of(criteria: Iterable[Any]) -> frozenset[int]:
    """The end tokens that stopping criteria name."""
    named = [one.eos_token_id for one in criteria if getattr(one, "eos_token_id", None) is not None]
    return frozenset(int(token) for ids in named for token in torch.as_tensor(ids).flatten().tolist())
