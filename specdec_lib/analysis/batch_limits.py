"""Up to which batch a roofline predicts that chains of drafts pay, by device and context. Nothing is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specdec_lib.cost.batches import BatchSeconds, chain_speedup, last_batch
from specdec_lib.cost.roofline import Chip, Roofline
from specdec_lib.models.llama.config import LlamaConfig


def chain_gains(seconds: BatchSeconds, alpha: float, lengths: Sequence[int], batches: Sequence[int]
                ) -> dict[str, list[float]]:
    """Predicted speed-ups of chains of these lengths at each batch, for free drafts accepted with probability alpha."""
    return {f"k = {k}": [chain_speedup(alpha, k, batch, seconds) for batch in batches] for k in dict.fromkeys(lengths)}


def pays_up_to(seconds: BatchSeconds, alpha: float, k: int, batches: Sequence[int]) -> int | None:
    """The last of these batches up to which chains of `k` are predicted to pay; None where they do at none."""
    return last_batch(lambda batch: chain_speedup(alpha, k, batch, seconds), batches)


def fitting(line: Roofline, batches: Sequence[int]) -> list[int]:
    """Those of these batches that fit into the device's memory with their context."""
    return [batch for batch in batches if line.holds(batch)]


def limit_rows(shape: LlamaConfig, chips: Sequence[Chip], contexts: Sequence[int], alpha: float, lengths: Sequence[int],
               batches: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A row for each device and context: the last batch that fits, and up to which of those each chain pays."""
    for chip, context in ((chip, context) for chip in chips for context in contexts):
        line = Roofline(shape, chip, context)
        fit = fitting(line, batches)
        yield {"device": chip.name, "context": context, "fits into memory": f"{fit[-1]}" if fit else "none", **{
            f"k = {k}": limit_cell(pays_up_to(line, alpha, k, fit), fit, batches) for k in dict.fromkeys(lengths)}}


def limit_cell(last: int | None, fit: Sequence[int], batches: Sequence[int]) -> str:
    """The last batch that pays; marked where it pays at all that fit, or at all that were asked for."""
    if last is None:
        return "none" if fit else "–"
    return f"{last}" + ("" if last != fit[-1] else " or more" if last == batches[-1] else ", all that fit")


def limit_text(last: int | None, batches: Sequence[int], what: str) -> str:
    """Up to which of these batches something is predicted to pay."""
    if not batches:
        return f"{what}: no batch fits into the memory"
    if last is None:
        return f"{what} is predicted to pay at no batch from {batches[0]} on"
    return f"{what} is predicted to pay {'at all batches that fit' if last == batches[-1] else f'up to batch {last}'}"
