"""When each token is in which stage of a pipeline that an early exit fills: simulated, in units of a layer's time.

A token enters the first stage when the one before it leaves it, since the exit then draws it; after a wrong draw it
enters when the one before it has left the last stage. Younger tokens are cancelled at that moment. A stage holds one
token at a time. With N layers of which the longest stage has L, a token follows the one before it after L layers if it
was drawn right, and after N if it was not (a flow shop of equal jobs), so per token

    alpha L + (1 - alpha) N        and with N / E stages of E layers the speed-up is N / (alpha E + (1 - alpha) N)

Source: the pipeline is that of PPSD (arXiv 2509.19368); the closed form is derived here. Sampling, heads and messages
cost nothing in this clock, and every worker computes at the speed at which one worker decodes plainly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specdec_lib.types import Refusal


class StageSpan(NamedTuple):
    """The time that one token spends in one stage; a cancelled one ends where it was cancelled."""

    stage: int
    token: int
    start: float
    end: float
    wanted: bool                                   # whether the token belongs to the text


class PipelineRun(NamedTuple):
    """The spans of a simulated decode, and the time at which each token of the text has left the last stage."""

    spans: tuple[StageSpan, ...]
    ready: tuple[float, ...]

    @property
    def per_token(self) -> float:
        """Layer-times from one token of the text to the next, on average."""
        return (self.ready[-1] - self.ready[0]) / (len(self.ready) - 1)


def stages_of(layers: int, exit: int, workers: int) -> tuple[int, ...]:
    """Layers of each stage: those below the exit, the others over the remaining workers as evenly as they go."""
    above = workers - 1
    if not (0 < exit < layers and 0 < above <= layers - exit):
        raise Refusal(f"a pipeline needs layers below and above the exit and one for each worker, got {layers} layers,"
                      f" an exit after {exit} and {workers} workers")
    whole, more = divmod(layers - exit, above)
    return (exit, *(whole + (place < more) for place in range(above)))


def speed_up(alpha: float, stages: Sequence[int]) -> float:
    """N / (alpha L + (1 - alpha) N), with N layers of which the longest stage has L: predicted, in layer-times."""
    layers = sum(stages)
    return layers / (alpha * max(stages) + (1 - alpha) * layers)


def expected_parts(alpha: float, stages: Sequence[int]) -> tuple[float, float]:
    """Time per token in forwards of all layers: the last stage at work, and waiting for a token."""
    work = stages[-1] / sum(stages)
    return work, 1 / speed_up(alpha, stages) - work


def simulate_pipeline(right: Sequence[bool], stages: Sequence[int], ahead: int | None = None) -> PipelineRun:
    """Simulates tokens 0, 1, ...; `right[i]` says whether the exit draws token i + 1 right when it sees token i.

    `ahead` bounds how many tokens may be in the stages beyond the oldest one; None is one for each further stage.
    """
    most = len(stages) - 1 if ahead is None else ahead
    spans: list[StageSpan] = []
    free, ready, enter = [0.0] * len(stages), [], 0.0
    for token in range(len(right) + 1):
        if token > most:
            enter = max(enter, ready[token - most - 1])
        passed = through_stages(token, enter, free, stages)
        spans += passed
        free, enter = [span.end for span in passed], passed[0].end
        ready.append(passed[-1].end)
        if token < len(right) and not right[token]:
            spans += cancelled(token, free, stages, [*ready], most)
            enter = ready[-1]
    return PipelineRun(tuple(spans), tuple(ready))


def through_stages(token: int, enter: float, free: Sequence[float], stages: Sequence[int],
                   wanted: bool = True) -> list[StageSpan]:
    """One token through all stages; stage i is free from free[i] on."""
    out: list[StageSpan] = []
    for stage, length in enumerate(stages):
        start = max(out[-1].end if out else enter, free[stage])
        out.append(StageSpan(stage, token, start, start + length, wanted))
    return out


def cancelled(token: int, free: Sequence[float], stages: Sequence[int], ready: list[float],
              most: int) -> list[StageSpan]:
    """What stages do behind a wrongly drawn token until `token` has left the last one, and all of it is cancelled."""
    end, enter, out, wrong = ready[-1], free[0], [], token + 1
    while enter < end:                             # with `most` ahead, the next one would wait for `end`
        if wrong > most:
            enter = max(enter, ready[wrong - most - 1])
        passed = through_stages(wrong, enter, free, stages, wanted=False)
        out += [span._replace(end=min(span.end, end)) for span in passed if span.start < end]
        free, enter, wrong = [span.end for span in passed], passed[0].end, wrong + 1
    return out
