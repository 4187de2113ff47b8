"""What a transformers config says of attention: windows, and positions that change with the length of the text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MOVING = ("dynamic", "longrope")                   # rotary frequencies that depend on how long the text is
SIZES = {"full_attention": None, "sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
EVERY = ""                                         # kind of a layer where a config does not tell its layers apart


def is_windowed(config: Any) -> bool:
    """Whether a layer sees a part of the text alone: a window that slides, or a chunk."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)    # GPT-Neo's
    if kinds:
        return any(word in kind for kind in kinds for word in ("sliding", "chunk", "local"))
    window, context = getattr(config, "sliding_window", None), getattr(config, "max_position_embeddings", None)
    used = getattr(config, "use_sliding_window", True) is not False
    return bool(window) and used and (context is None or window < context)


def window_sizes(config: Any) -> dict[str, str | None]:
    """Kind of layer -> the name under which its config has the size of its window; None where it sees the whole text.

    KeyError for a kind whose window is not described in this way.
    """
    if not is_windowed(config):
        return {EVERY: None}
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    return {kind: SIZES[kind] for kind in sorted(set(kinds))} if kinds else {EVERY: "sliding_window"}


@contextmanager
def windows_of(size: int, config: Any) -> Iterator[None]:
    """Gives every window of the config this size for a while, so that a short trial text outgrows it."""
    held = {name: getattr(config, name) for name in window_sizes(config).values() if name}
    try:
        for name in held:
            setattr(config, name, size)
        yield
    finally:
        for name, before in held.items():
            setattr(config, name, before)


def moves_after(config: Any) -> int | None:
    """The tokens after which the frequencies of all positions change; None where they never do.

    A draft that reaches beyond them would change rows that plain decoding computes before.
    """
    asked = getattr(config, "rope_parameters", None) or {}
    parts = [asked, *(part for part in asked.values() if isinstance(part, dict))]
    held = getattr(config, "max_position_embeddings", None)
    ends = [part.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
            or held for part in parts if part.get("rope_type") in MOVING]
    return min((end for end in ends if end), default=None)
