"""What a forward of several sequences costs, and what is left of the gain of speculation as their number grows.

With one sequence a forward is bound by the reading of weights, so rows of a draft cost little. Rows of other sequences
use the same weights: once they fill the arithmetic, every drafted row costs what an emitted one does, and a rejected
draft is a loss (Su et al. 2023, arXiv 2310.18813; Liu et al. 2024, arXiv 2406.14066).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from specdec_lib.cost.curves import CostCurve, draft_after, expected_tokens, lower_quartile, never_less, save_plain
from specdec_lib.scores import Scores
from specdec_lib.types import LM, Draft, Refusal

WIDTHS = (1, 2, 3, 5, 7, 9)
BATCHES = (1, 2, 4, 8)
MADE = "make one with 'specdec cost --batch 1,2,4,8 --out FILE'"


class BatchSeconds(Protocol):
    """Seconds of one forward of `batch` sequences with `width` rows each: a `BatchCurve`, or a roofline."""

    def __call__(self, batch: float, width: float) -> float: ...


@dataclass(frozen=True)
class BatchCurve:
    """Measured seconds of one forward by sequences and rows of each: `seconds [batches][widths]`, at one context."""

    batches: tuple[int, ...]
    widths: tuple[int, ...]
    context: int
    seconds: tuple[tuple[float, ...], ...]
    target: str = ""
    device: str = ""
    dtype: str = ""
    threads: int | None = None
    provenance: Mapping = field(default_factory=dict)

    def __post_init__(self):
        for places in (self.batches, self.widths):
            if not places or list(places) != sorted(set(places)) or places[0] != 1 or not all(
                    type(place) is int for place in places):
                raise Refusal("a cost curve of batches needs rising whole batches and widths that start at 1")
        if [len(row) for row in self.seconds] != [len(self.widths)] * len(self.batches):
            raise Refusal("a cost curve of batches needs one time for every width of every batch")
        if not all(1e-12 < s < 1e12 for row in self.seconds for s in row):
            raise Refusal("a cost curve of batches needs times above zero, finite ones, in seconds")

    def __call__(self, batch: float, width: float) -> float:
        """Linear between measurements in both directions, extrapolated after the last, never below it."""
        if batch < 1 or width < 1:
            raise ValueError(f"a forward has a sequence and a row at least, got {batch} and {width}")
        return never_less(self.batches, [never_less(self.widths, row, width) for row in self.seconds], batch)

    def of(self, batch: int) -> CostCurve:
        """The cost of a forward of so many sequences by the rows of each; Refusal beyond the batches measured."""
        if not 1 <= batch <= self.batches[-1]:
            raise Refusal(f"this cost curve has batches of 1 to {self.batches[-1]}, not of {batch}: {MADE}")
        row = tuple(self(batch, width) for width in self.widths)
        return CostCurve(self.widths, (self.context,), (row,), self.target, self.device, self.dtype, self.threads,
                         self.provenance, batch)

    def as_dict(self) -> dict:
        """For JSON."""
        return asdict(self) | {"provenance": dict(self.provenance)}

    def save(self, path: str | Path) -> None:
        """Writes one JSON file; creates a missing folder."""
        save_plain(Path(path), self.as_dict())


def load_batch_curve(path: str | Path) -> BatchCurve:
    """A saved curve; Refusal if the file is missing or not one."""
    try:
        return batch_curve_of(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise Refusal(f"the cost curve of batches {path} cannot be read ({error.strerror}): {MADE}") from None
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise Refusal(f"{path} is no cost curve of batches ({error}): {MADE}") from None


def batch_curve_of(saved: Mapping[str, Any]) -> BatchCurve:
    """The inverse of `as_dict`."""
    return BatchCurve(tuple(saved["batches"]), tuple(saved["widths"]), int(saved["context"]),
                      tuple(tuple(map(float, row)) for row in saved["seconds"]), saved["target"], saved["device"],
                      saved["dtype"], saved["threads"], saved["provenance"])


def measure_batch_curve(models: Sequence[LM], score: Callable[[Sequence[tuple[Any, tuple[int, ...], Draft]]],
                                                              Sequence[Scores]],
                        batches: Sequence[int] = BATCHES, widths: Sequence[int] = WIDTHS, context: int = 256,
                        repeats: int = 11, vocab: int = 1000, clock: Callable[[], float] = perf_counter,
                        progress: Callable[[int, int], None] = lambda done, total: None, target: str = "",
                        device: str = "", dtype: str = "", threads: int | None = None,
                        provenance: Mapping | None = None) -> BatchCurve:
    """The curve on this machine: lower quartile of `repeats`, all cells taken in turn so that drift cancels.

    `models` are as many sequences as the largest batch, `score` runs some of them in one forward. Ids stay below
    `vocab`; their values do not matter. The names are saved with the curve and not checked.
    """
    if len(models) < max(batches):
        raise ValueError(f"a batch of {max(batches)} needs as many sequences, got {len(models)}")
    base = tuple(i * 7 % vocab for i in range(context))
    for model in models:
        model.prefill(base)
    cells = [(batch, width) for batch in batches for width in widths]
    times: dict[tuple[int, int], list[float]] = {cell: [] for cell in cells}
    total, done = len(cells) * (repeats + 1), 0
    for repeat in range(repeats + 1):
        for batch, width in cells if repeat % 2 else cells[::-1]:
            fresh, draft = draft_after(done, width, vocab)
            start = clock()
            found = score([(model, (*base, fresh), draft) for model in models[:batch]])
            assert all(one.best for one in found)  # logits exist, on the host
            times[batch, width].append(clock() - start)
            done += 1
            progress(done, total)
    seconds = tuple(tuple(lower_quartile(times[b, w][1:]) for w in widths) for b in batches)    # the first one warms up
    return BatchCurve(tuple(batches), tuple(widths), context, seconds, target, device, dtype, threads, provenance or {})


def batch_speedup(tokens: float, batch: float, width: float, seconds: BatchSeconds, draft: float = 0.0) -> float:
    """Predicted speed of speculation over plain decoding, both with `batch` sequences: tokens T(B, 1) / round.

    `tokens` are emitted a round and sequence, `width` rows are verified of each, k + 1 for a chain of k. `draft` are
    the seconds that one sequence's draft takes, one sequence after the other: a round is T(B, width) + B draft. Where
    sequences share the drafter's forwards that is the most that drafting may take.
    """
    return tokens * seconds(batch, 1) / (seconds(batch, width) + batch * draft)


def stream_speedup(tokens: float, width: float, filled: float, plain: float, seconds: BatchSeconds,
                   draft: float = 0.0) -> float:
    """The same for streams of prompts that did not keep the batch full: sequences per forward, `filled` and `plain`.

    Plain answers of one length end together. Speculation ends them one by one, and at the end of a short stream nobody
    takes the place: fewer sequences then share a forward. Where both are the batch, this is `batch_speedup`.
    """
    return filled * tokens / (seconds(filled, width) + filled * draft) * seconds(plain, 1) / plain


def chain_speedup(alpha: float, k: int, batch: float, seconds: BatchSeconds, draft: float = 0.0) -> float:
    """The same for chains of `k` tokens, each accepted independently with probability alpha."""
    return batch_speedup(expected_tokens(alpha, k), batch, k + 1, seconds, draft)


def best_chain(alpha: float, batch: float, seconds: BatchSeconds, draft: float = 0.0, longest: int = 16) -> int:
    """The length of the chain with the highest predicted speed at this batch; 0 where drafting does not pay."""
    return max(range(longest + 1), key=lambda k: chain_speedup(alpha, k, batch, seconds, k * draft))


def last_batch(speedup: Callable[[int], float], batches: Sequence[int]) -> int | None:
    """The last of these rising batches up to which every speed-up is above 1; None where the first is not."""
    last = None
    for batch in batches:
        if speedup(batch) <= 1:
            return last
        last = batch
    return last
