"""transformers' own generation, and llama.cpp, as peers in the same run: same ids, same end tokens, same limit.

`generate` returns only tokens, so prefill is the time of a one-token `generate` on the same prompt, subtracted, and a
hook counts forwards. The state that transformers keeps between calls (the assistant's length and confidence threshold
tune themselves) is reset before every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import torch

from specdec_lib.bench.llama_cpp_peer import LLAMA_CPP, LlamaCpp, check_llama_cpp, load_llama_cpp
from specdec_lib.bench.results import Outcome
from specdec_lib.hub import locate
from specdec_lib.models.pretrained import pretrained
from specdec_lib.sampling import Sampling
from specdec_lib.types import Refusal, up_to_end

LOOKUP = {"prompt_lookup_num_tokens": 10, "max_matching_ngram_size": 2}      # transformers' own example and default
ASSISTED = {"num_assistant_tokens": 4, "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": 0.0}
PEERS: dict[str, str] = {
    "hf-generate": "transformers' plain generate",
    "hf-prompt-lookup": "transformers' prompt lookup, up to 10 tokens from an n-gram of at most 2",
    "hf-assisted": "transformers' assisted generation, 4 tokens of the draft model a round, no self-tuning",
    **LLAMA_CPP,
}
OF_SEQ2SEQ: dict[str, str] = {"beam": "beam search of width 5"}     # peers of the encoder-decoder


def check_peers(names: Sequence[str], draft: str | None, target: str = "", temperature: float = 0.0) -> None:
    """Refuses an unknown peer, one of another kind of target, and one whose draft model was not given."""
    check_llama_cpp(names, target, temperature)
    known = OF_SEQ2SEQ if target == "g2p" else PEERS
    for name in names:
        if name not in known:
            raise Refusal(f"there is no peer named {name!r}; there are: {', '.join(known)}")
        if name == "hf-assisted" and draft is None:
            raise Refusal("hf-assisted needs a draft model: give one with --draft")


@dataclass(frozen=True)
class Peer:
    """One way to call `generate`; the model is shared between the peers of a run."""

    name: str
    model: Any
    end: frozenset[int]
    context: int | None = None
    sampling: Sampling | None = None               # None is greedy
    assistant: Any = None

    def __call__(self, ids: Sequence[int], max_new_tokens: int, seed: int = 0) -> Outcome:
        """Decodes these ids; `seed` counts only when sampling."""
        room = max_new_tokens if self.context is None else min(max_new_tokens, self.context - len(ids))
        one, _, _ = self._timed(ids, 1, seed)
        whole, tokens, calls = self._timed(ids, room, seed)
        return Outcome(tokens, one, max(whole - one, 0.0) if len(tokens) > 1 else 0.0, len(tokens) - 1, calls - 1)

    def _timed(self, ids: Sequence[int], room: int, seed: int) -> tuple[float, tuple[int, ...], int]:
        if self.sampling is not None:
            torch.manual_seed(seed)
        options = self.options(room)
        prompt = torch.tensor([list(ids)], device=self.model.device)
        with counted(self.model) as calls, torch.inference_mode():
            start = perf_counter()
            out = self.model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
            tokens = out[0, len(ids):].tolist()    # on the host: on CUDA the clock stops when the work is done
            took = perf_counter() - start
        return took, up_to_end(tokens, self.end), len(calls)

    def options(self, room: int) -> dict:
        """A generation config of our own, so that the model's folder and the last call have no effect."""
        from transformers.generation.configuration_utils import GenerationConfig

        sampled = {} if self.sampling is None else asdict(self.sampling)       # named there as here
        config = GenerationConfig(max_new_tokens=room, do_sample=bool(sampled), num_beams=1, use_cache=True,
                                  eos_token_id=sorted(self.end) or None, pad_token_id=min(self.end, default=0),
                                  **sampled, **(LOOKUP if self.name == "hf-prompt-lookup" else {}))
        if self.name != "hf-assisted":
            return {"generation_config": config}
        for name, value in ASSISTED.items():       # the threshold and the length tune themselves during a call
            setattr(self.assistant.generation_config, name, value)
        return {"generation_config": config, "assistant_model": self.assistant}


@contextmanager
def counted(model):
    """A list that grows by one with every forward of the model."""
    calls: list[int] = []
    handle = model.register_forward_pre_hook(lambda module, args: calls.append(1))
    try:
        yield calls
    finally:
        handle.remove()


def load_peers(names: Sequence[str], folder: str, dtype: torch.dtype, device: str, end: frozenset[int],
               context: int | None = None, sampling: Sampling | None = None, draft: str | None = None,
               read: Callable[..., Any] | None = None, threads: int | None = None) -> tuple[Peer | LlamaCpp, ...]:
    """The peers of these names: transformers' share one model; `folder` is a local folder."""
    check_peers(names, draft, temperature=sampling.temperature if sampling else 0.0)
    ours = [name for name in names if name not in LLAMA_CPP]
    made: dict[str, Peer | LlamaCpp] = {}
    if ours:
        read = read or _read
        model = read(folder, dtype, device)
        assistant = read(draft, dtype, device) if "hf-assisted" in names else None
        refuse_other_size(model, assistant)
        made = {name: Peer(name, model, end, context, sampling, assistant) for name in ours}
    others = [name for name in names if name in LLAMA_CPP]
    if others:
        made |= {peer.name: peer for peer in load_llama_cpp(others, str(locate.default_gguf()), threads, end)}
    return tuple(made[name] for name in names)


def refuse_other_size(model, assistant) -> None:
    """Refuses an assistant with a vocabulary of another size, which `generate` takes for another tokenizer.

    Vocabularies of one family that are padded to different sizes are refused as well.
    """
    if assistant is None:
        return
    target, draft = (one.config.get_text_config().vocab_size for one in (model, assistant))
    if target != draft:
        raise Refusal("transformers assists only with a vocabulary of the target's size, and the target has"
                      f" {target} tokens and the draft model {draft}: leave hf-assisted out, or give --draft a model"
                      " of the same size of vocabulary")


def _read(folder: str, dtype: torch.dtype, device: str):
    from transformers.utils import logging

    logging.set_verbosity_error()
    return pretrained("AutoModelForCausalLM", folder, dtype=dtype, use_safetensors=True).to(device).eval()
