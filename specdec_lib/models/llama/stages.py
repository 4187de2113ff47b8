"""A decoder split into two stages, each with a cache of its own: hidden states leave one and enter the other.

The first stage is an exit of the decoder on a cache of its own, `target.exit(layer).fresh()`: it embeds tokens and
takes them through the layers below. The second is the decoder itself, which resumes rows from the hidden states that
`enter` writes into its cache and computes the layers above alone. Both caches align themselves to the tokens that they
are given next, so a rejected token needs no rollback in either stage.
"""

from __future__ import annotations

from torch import Tensor

from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import Draft, Refusal


def leaving_states(stage: Transformer, start: int) -> Tensor:
    """Hidden states [rows, hidden] behind the last layer of an exit, of its cached rows from `start` on; a copy."""
    if stage.depth == stage.layers:
        raise ValueError(f"all {stage.layers} layers are in this stage: a stage ends below the last layer")
    hidden = stage.cache.hidden
    return hidden[start:len(stage.cache.rows)].clone() if hidden is not None else stage.weights.embedding[:0].clone()


def enter(target: Transformer, tokens: tuple[int, ...], states: Tensor, layer: int) -> None:
    """Hands the last tokens' hidden states [rows, hidden] behind `layer` to the decoder, which computes nothing yet.

    The next forward or prefill of these tokens takes them through the layers above `layer`. ValueError where the
    decoder lacks rows before them, Refusal where it is to keep hidden states of layers that it does not compute.
    """
    if min(target.cache.taps, default=layer + 1) <= layer:
        raise Refusal(f"hidden states of layer {min(target.cache.taps)} are asked for, and the process of the layers"
                      f" above {layer} does not compute them: take a policy that reads none")
    target.cache.align(tokens, Draft())
    rows, start = target.cache.rows, len(tokens) - len(states)
    if len(rows) < start:
        raise ValueError(f"the states are of the tokens from {start} on, and the stage above has only {len(rows)}")
    del rows.depth[start:]
    target.reserve(len(tokens))
    target.cache.reserve(len(tokens), half_way=True)
    assert target.cache.hidden is not None         # the line above makes it
    target.cache.hidden[start:len(tokens)].copy_(states)
    rows.depth += [target.checked(layer)] * len(states)
