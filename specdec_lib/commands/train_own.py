"""`specdec train` for models that draft for no language model: boards, digits, and the pronunciation of words.

They are trained on data of their own, so the options that shape a drafter for a target are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from specdec_lib.bench.environment import dtype_of
from specdec_lib.bench.plan import check_threads
from specdec_lib.bench.provenance import card_provenance, provenance
from specdec_lib.checkpoints.card import card_text
from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.checkpoints.trainable import CANVAS, DIGITS, PRONOUNCING
from specdec_lib.files import alone_in
from specdec_lib.models.threads import for_model
from specdec_lib.training.pipeline import TrainingOrder
from specdec_lib.training.train_canvas import CanvasOrder, train_canvas
from specdec_lib.training.train_digits import DigitSettings, train_digits
from specdec_lib.training.train_g2p import train_verifier
from specdec_lib.training.train_g2p_drafter import train_g2p_drafter
from specdec_lib.types import Refusal

Say = Callable[[str], None]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class OwnOrder:
    """The options that a model of its own may take; None leaves them to its recipe."""

    out: Path
    minutes: float
    threads: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    seed: int = 0
    optimiser: str | None = None
    rate: float | None = None
    batch: int | None = None

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these options that were given."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def train_own_model(name: str, order: OwnOrder, shaping: Sequence[str], say: Say, progress: Progress) -> str:
    """Trains the model of this name and returns its card as text.

    Refusal where options were given that it does not take: `shaping` names those that shape a drafter for a target.
    """
    takes, train = OWN_MODELS[name]
    strange = [*shaping, *(word for word in ("optimiser", "batch") if word not in takes and order.given(word))]
    if strange:
        raise Refusal(f"leave out {', '.join(f'--{word}' for word in strange)}, which shape a drafter of a language "
                      f"model: {name} takes --minutes, --threads, --seed, --out, "
                      + ", ".join(f"--{word}" for word in takes))
    if order.device not in ("auto", "cpu"):
        raise Refusal(f"{name} is trained on the processor: leave --device out, got {order.device}")
    check_threads(order.threads)
    for_model(order.threads or 1)
    dtype = "float32" if order.dtype == "auto" else dtype_of(order.dtype, "cpu")
    return card_text(train(order, card_provenance(provenance(), dtype), say, progress).card)


def alone(order: OwnOrder, name: str) -> AbstractContextManager[None]:
    """Keeps other processes from training this model until it is measured and its card written."""
    return alone_in(order.out / "work" / name)


def canvas(order: OwnOrder, made: Mapping, say: Say, progress: Progress) -> Checkpoint:
    asked = CanvasOrder(order.out, order.minutes, seed=order.seed, dtype=made["dtype"],
                        **order.given("optimiser", "rate", "batch"))
    with alone(order, CANVAS):
        return train_canvas(asked, made, say, progress)


def digits(order: OwnOrder, made: Mapping, say: Say, progress: Progress) -> Checkpoint:
    if made["dtype"] != "float32":
        raise Refusal(f"{DIGITS} is trained in float32, got {made['dtype']}")
    asked = DigitSettings(order.minutes, seed=order.seed, **order.given("rate"))
    with alone(order, DIGITS):
        return train_digits(asked, order.out, made, say, progress)


def verifier(order: OwnOrder, made: Mapping, say: Say, progress: Progress) -> Checkpoint:
    asked = training_order(order)
    with alone(order, PRONOUNCING[0]):
        return train_verifier(asked, made, say, progress)


def drafter(order: OwnOrder, made: Mapping, say: Say, progress: Progress) -> Checkpoint:
    asked = training_order(order)
    with alone(order, PRONOUNCING[1]):
        return train_g2p_drafter(asked, made, say, progress)


def training_order(order: OwnOrder) -> TrainingOrder:
    return TrainingOrder(order.out, order.minutes, optimiser=order.optimiser, rate=order.rate, seed=order.seed,
                         batch=order.batch)


ALL = ("rate", "optimiser", "batch", "dtype")
OWN_MODELS: Mapping[str, tuple[tuple[str, ...], Callable[..., Checkpoint]]] = MappingProxyType(
    {CANVAS: (ALL, canvas), DIGITS: (("rate",), digits), PRONOUNCING[0]: (ALL, verifier),
     PRONOUNCING[1]: (ALL, drafter)})
