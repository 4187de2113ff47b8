"""A forward of several sequences on a device that reads so many bytes and does so many operations a second: predicted.

The time is that of the slower of the two (Williams et al. 2009, roofline): weights are read once for all sequences,
keys and values once for each, and every row multiplies all weights. Launches, waiting and imperfect kernels are left
out, so a real forward is slower; a ratio of two such times is an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from specdec_lib.cost.flops import MatrixUse, Work, kv_numbers, layer_matrices, total_work
from specdec_lib.models.llama.config import LlamaConfig


@dataclass(frozen=True)
class Chip:
    """Peak rates of a device: bytes of memory a second, and operations a second in the dtype of the weights."""

    name: str
    bandwidth: float
    flops: float
    memory: float = inf                            # bytes

    def __post_init__(self):
        if not (self.bandwidth > 0 and self.flops > 0 and self.memory > 0):
            raise ValueError(f"a device has rates and a memory above zero, got {self.bandwidth}, {self.flops} and "
                             f"{self.memory}")


# NVIDIA's data sheets: memory bandwidth, dense bfloat16 operations (half of what is stated with sparsity), and memory
CHIPS = (Chip("A100 80GB SXM", 2.039e12, 312e12, 80e9), Chip("H100 SXM", 3.35e12, 989e12, 80e9))


@dataclass(frozen=True)
class Roofline:
    """Predicted seconds of a forward: `roofline(batch, width)`, a `cost.batches.BatchSeconds`."""

    shape: LlamaConfig
    chip: Chip
    context: int = 1024                            # tokens of each sequence that are read again in every forward
    number: int = 2                                # bytes of a weight

    def work(self, batch: float, width: float) -> Work:
        """Numbers read and multiply-adds of one forward."""
        rows, shape = batch * width, self.shape
        held = shape.layers * kv_numbers(shape, self.context)
        head = MatrixUse(shape.vocab * shape.hidden, 1, 1)
        weights = total_work([*layer_matrices(shape, shape.layers, 1, 1, 0), head])
        return Work(weights.read + batch * held, rows * (weights.products + held * shape.group))

    def holds(self, batch: float) -> bool:
        """Whether the weights, the embedding included, and the keys and values of a batch fit into the memory."""
        embedding = 0 if self.shape.tied else self.shape.vocab * self.shape.hidden
        return self.number * (self.work(batch, 1).read + embedding) <= self.chip.memory

    def reading(self, batch: float, width: float) -> float:
        """Seconds that the memory takes."""
        return self.number * self.work(batch, width).read / self.chip.bandwidth

    def computing(self, batch: float, width: float) -> float:
        """Seconds that the arithmetic takes, two operations a multiply-add."""
        return 2 * self.work(batch, width).products / self.chip.flops

    def __call__(self, batch: float, width: float) -> float:
        if batch < 1 or width < 1:
            raise ValueError(f"a forward has a sequence and a row at least, got {batch} and {width}")
        return max(self.reading(batch, width), self.computing(batch, width))
