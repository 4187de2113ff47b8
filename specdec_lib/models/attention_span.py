"""What a transformers config says of attention: windows, and positions that change with the length of the text."""

from __future__ import annotations

from typing import Any

MOVING = ("dynamic", "longrope")                   # rotary frequencies that depend on how long the text is


def is_windowed(config: Any) -> bool:
    """Whether a layer sees a part of the text alone: a window that slides, or a chunk."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)    # GPT-Neo's
    if kinds:
        return any(word in kind for kind in kinds for word in ("sliding", "chunk", "local"))
    window, context = getattr(config, "sliding_window", None), getattr(config, "max_position_embeddings", None)
    used = getattr(config, "use_sliding_window", True) is not False
    return bool(window) and used and (context is None or window < context)


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
