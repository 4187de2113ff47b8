"""llama.cpp as a peer in the same run: the default target's own 4-bit GGUF, plain and with its prompt lookup.

It is what a reader on a CPU would use instead. Its weights stay in four bits and its activations are rounded to eight,
whatever `--dtype` says, so its ids may part from plain decoding's. The package `llama-cpp-python` is an extra.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any

from specdec_lib.bench.results import Outcome
from specdec_lib.hub import locate
from specdec_lib.types import Refusal

PLAIN, LOOKUP = "llama.cpp", "llama.cpp-lookup"
LLAMA_CPP: dict[str, str] = {
    PLAIN: "llama.cpp on the target's own 4-bit file, plain",
    LOOKUP: "llama.cpp with its package's prompt lookup, 10 tokens from an n-gram of at most 2",
}
CONTEXT = 2048                                     # with lookup it keeps 200 kB of logits for every position
BATCH = 512                                        # tokens that one of its forwards takes at most: its own default


def check_llama_cpp(names: Sequence[str], target: str, temperature: float) -> None:
    """Refuses these peers for a target without a GGUF, and for sampling."""
    asked = [name for name in names if name in LLAMA_CPP]
    if asked and target not in ("", locate.DEFAULT):
        raise Refusal(f"{asked[0]} needs a GGUF file, which {locate.DEFAULT} alone brings along: leave it out")
    if asked and temperature:
        raise Refusal(f"{asked[0]} is compared with greedy decoding: leave --temperature out, or the peer")


@dataclass(frozen=True)
class LlamaCpp:
    """Greedy decoding by llama.cpp; `model` is a `llama_cpp.Llama`, with a lookup drafter or without."""

    name: str
    model: Any
    end: frozenset[int]
    context: int = CONTEXT

    def __call__(self, ids: Sequence[int], max_new_tokens: int, seed: int = 0) -> Outcome:
        """Decodes these ids from an empty cache. Raises Refusal where they do not fit the context."""
        room = min(max_new_tokens, self.context - len(ids))
        if room < 1:
            raise Refusal(f"{self.name} has a context of {self.context} tokens here, and a prompt has {len(ids)}")
        self.model.reset()
        with counted_evals(self.model) as calls:
            start = perf_counter()
            stream = self.model.generate(list(ids), temp=0.0, top_k=1, repeat_penalty=1.0)
            tokens = [next(stream)]
            first, read = perf_counter() - start, len(calls)
            if tokens[0] not in self.end:
                tokens += until_end(islice(stream, room - 1), self.end)
            took = perf_counter() - start
            stream.close()
        return Outcome(tuple(tokens), first, took - first if len(tokens) > 1 else 0.0, len(tokens) - 1,
                       len(calls) - read)


def until_end(tokens: Iterator[int], end: frozenset[int]) -> Iterator[int]:
    """The tokens up to and including the first end token; what follows is not computed."""
    for token in tokens:
        yield token
        if token in end:
            return


@contextmanager
def counted_evals(model: Any) -> Iterator[list[int]]:
    """A list that gets the number of tokens of every forward: `eval` runs one for every 512 tokens."""
    calls: list[int] = []
    plain = model.eval

    def counting(tokens):
        calls.extend(len(tokens[i:i + BATCH]) for i in range(0, len(tokens), BATCH))
        return plain(tokens)

    model.eval = counting
    try:
        yield calls
    finally:
        model.eval = plain


def load_llama_cpp(names: Sequence[str], gguf: str, threads: int | None, end: frozenset[int]) -> list[LlamaCpp]:
    """The peers of these names on one file, each with a context of its own. Raises Refusal without the package."""
    try:
        import llama_cpp  # pyright: ignore[reportMissingImports]  an extra
        from llama_cpp import llama_speculative  # pyright: ignore[reportMissingImports]
    except ImportError as missing:
        raise Refusal(f"{names[0]} needs the package llama-cpp-python ({missing}): pip install"
                      " -c constraints.txt -e '.[llama-cpp]', which compiles for some minutes") from missing
    drafters = {PLAIN: lambda: None, LOOKUP: lambda: llama_speculative.LlamaPromptLookupDecoding(2, 10)}
    common = {"n_ctx": CONTEXT, "n_batch": BATCH, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
    # Version 0.3.36 fails at prompts above BATCH where it drafts and does not keep the logits of all positions.
    return [LlamaCpp(name, llama_cpp.Llama(gguf, draft_model=drafters[name](), logits_all=name == LOOKUP, **common),
                     end) for name in names]
