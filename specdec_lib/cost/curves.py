"""The cost of a forward by its width, and the speed predicted from it: seconds from counts.

A cost curve is measured once on a machine, saved with its provenance, and read wherever a decision or a prediction
needs seconds, so that neither depends on the clock; `refit.py` corrects one that a run measured for itself. Source of
the algebra: Leviathan et al. 2023, section 3.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from specdec_lib.cards import Kit
from specdec_lib.cost.lengths import best_length
from specdec_lib.files import write_text
from specdec_lib.scores import Scores
from specdec_lib.types import Draft, Refusal

WIDTHS = (*range(1, 11), 12, 16, 17, 24, 32)       # AVX-512 holds 9 rows, a register of AMX 16: the next is dear
LARGEST, DEEPEST = 1_000_000, 20                   # of a width or a context, and levels of a provenance
DEFAULT_NODES = 8                                  # without a measured curve
TOLERANCE = 1.25


class Timed(Protocol):
    """What a curve is measured of: a language model, or several sequences of one at once."""
    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores: ...
    def prefill(self, tokens: tuple[int, ...]) -> None: ...


@dataclass(frozen=True)
class CostCurve:
    """Seconds of one forward by its width in tokens, at each context length measured; `seconds [contexts][widths]`.

    The forward is of `batch` sequences, each of this width.
    """

    widths: tuple[int, ...]
    contexts: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    target: str = ""
    device: str = ""
    dtype: str = ""
    threads: int | None = None
    provenance: Mapping = field(default_factory=dict)
    batch: int = 1

    def __post_init__(self):
        if type(self.batch) is not int or self.batch < 1:
            raise Refusal(f"a cost curve is of one sequence or more, got {self.batch!r}")
        if not all(type(place) is int and 1 <= place <= LARGEST for place in (*self.widths, *self.contexts)):
            raise Refusal(f"a cost curve needs widths and contexts that are whole numbers from 1 to {LARGEST:,}")
        ordered = all(list(x) == sorted(set(x)) and x for x in (self.widths, self.contexts))
        if not ordered or self.widths[0] != 1:
            raise Refusal("a cost curve needs rising widths that start at 1, and rising contexts")
        if [len(row) for row in self.seconds] != [len(self.widths)] * len(self.contexts):
            raise Refusal("a cost curve needs one time for every width at every context")
        if not all(1e-12 < s < 1e12 for row in self.seconds for s in row):
            raise Refusal("a cost curve needs times above zero, finite ones, in seconds")

    def __call__(self, width: float, context: float | None = None) -> float:
        """Seconds of a forward of `width` tokens: linear between measurements, extrapolated after the last.

        A wider forward than the last one measured takes at least as long. Linear between contexts too, constant outside
        of them; None is the shortest context measured.
        """
        if width < 1:
            raise ValueError(f"a forward has at least one token, got {width}")
        rows = [never_less(self.widths, row, width) for row in self.seconds]
        if context is None or len(rows) == 1:
            return rows[0]
        return interpolated(self.contexts, rows, min(max(context, self.contexts[0]), self.contexts[-1]))

    def nodes(self, tolerance: float = TOLERANCE) -> int:
        """The widest draft whose verification costs at most `tolerance` plain forwards: T(n + 1) <= tolerance T(1).

        Among the widths measured; at least 1, so that a draft exists even if it does not pay.
        """
        limit = tolerance * self(1)
        return max((n for n in range(1, self.widths[-1]) if self(n + 1) <= limit), default=1)

    def price(self) -> float:
        """The cost of one more node in plain forwards: the mean up to four times `nodes()`."""
        nodes = 4 * self.nodes()
        return max(0.0, self(nodes + 1) / self(1) - 1) / nodes

    def expected_speedup(self, tokens: float, width: float, draft: float = 0.0) -> float:
        """Predicted from the curve: `tokens` per forward of mean `width`, and seconds of drafting per round."""
        return tokens * self(1) / (self(width) + draft)

    def as_dict(self) -> dict:
        """For JSON."""
        return asdict(self) | {"widths": list(self.widths), "contexts": list(self.contexts),
                               "seconds": [list(row) for row in self.seconds], "provenance": dict(self.provenance)}

    def save(self, path: str | Path) -> None:
        """Writes one JSON file; creates a missing folder."""
        save_plain(Path(path), self.as_dict())


def save_plain(path: Path, plain: Mapping) -> None:
    """Writes plain data as one JSON file; creates a missing folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(plain, indent=1) + "\n")


def draft_after(done: int, width: int, vocab: int) -> tuple[int, Draft]:
    """The last token of the text and a chain behind it, `width` rows, with other ids each time.

    With the same ids, cached logits would be reused.
    """
    fresh = (1 + done) % vocab
    return fresh, Draft(tuple((fresh + i) % vocab for i in range(1, width)), tuple(range(-1, width - 2)))


def load_curve(path: str | Path) -> CostCurve:
    """A saved curve; Refusal if the file is missing or not one."""
    try:
        return from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise Refusal(f"the cost curve {path} cannot be read ({error.strerror}): make one with"
                      " 'specdec cost --out FILE'") from None
    except Refusal as error:
        raise Refusal(f"{path} is no cost curve: {error}; make one with 'specdec cost --out FILE'") from None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise Refusal(f"{path} is no cost curve ({error}): make one with 'specdec cost --out FILE'") from None


def from_dict(saved: Mapping) -> CostCurve:
    """The inverse of `as_dict`."""
    names = (saved.get("target", ""), saved.get("device", ""), saved.get("dtype", ""))
    if not all(isinstance(name, str) for name in names) or not isinstance(saved.get("provenance", {}), Mapping):
        raise Refusal("a cost curve names its target, device and dtype in words")
    if deeper_than(saved.get("provenance", {}), DEEPEST):
        raise Refusal(f"the provenance of a cost curve has at most {DEEPEST} levels")
    return CostCurve(tuple(saved["widths"]), tuple(saved["contexts"]), tuple(tuple(row) for row in saved["seconds"]),
                     *names, saved.get("threads"), saved.get("provenance", {}), saved.get("batch", 1))


def deeper_than(value: Any, levels: int) -> bool:
    """Whether plain data is nested deeper than this: what is copied level by level later must end."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return levels < 0 or any(deeper_than(one, levels - 1) for one in inner)


def node_budget(curve: CostCurve | None, tolerance: float = TOLERANCE) -> int:
    """The node budget of a machine, or 8 without a curve."""
    return DEFAULT_NODES if curve is None else curve.nodes(tolerance)


def step_price(curve: CostCurve | None) -> float:
    """The price of a node on a machine, in plain forwards, or 0.03 without a curve."""
    return Kit.price if curve is None else curve.price()


def measure_curve(lm: Timed, widths: Sequence[int] = WIDTHS, contexts: Sequence[int] = (256,), repeats: int = 11,
                  vocab: int = 1000, clock: Callable[[], float] = perf_counter,
                  progress: Callable[[int, int], None] = lambda done, total: None, target: str = "",
                  device: str = "", dtype: str = "", threads: int | None = None,
                  provenance: Mapping | None = None, batch: int = 1) -> CostCurve:
    """The curve of this model on this machine: lower quartile of `repeats`, widths taken in turn so that drift cancels.

    The quartile and not the median, because other load on the machine only adds time.
    Ids stay below `vocab`; their values do not matter. The names are saved with the curve and not checked.
    """
    times = {(c, w): [] for c in contexts for w in widths}
    total, done = len(times) * (repeats + 1), 0
    for context in contexts:
        base = tuple(i * 7 % vocab for i in range(context))
        lm.prefill(base)
        for repeat in range(repeats + 1):
            for width in widths if repeat % 2 else reversed(widths):
                fresh, draft = draft_after(done, width, vocab)
                tokens = base + (fresh,)
                start = clock()
                assert lm(tokens, draft).best      # logits exist, on the host
                times[context, width].append(clock() - start)
                done += 1
                progress(done, total)
    seconds = tuple(tuple(lower_quartile(times[c, w][1:]) for w in widths) for c in contexts)  # the first one warms up
    return CostCurve(tuple(widths), tuple(contexts), seconds, target, device, dtype, threads, provenance or {},
                     batch)


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens per target forward when each of `k` drafted tokens is accepted independently, probability alpha."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is a probability, got {alpha}")
    return k + 1.0 if alpha == 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


def expected_speedup(alpha: float, k: int, c: float, verify: float = 1.0) -> float:
    """Speed over plain decoding with `k` drafted tokens of cost `c` each and a verification costing `verify`.

    All costs in plain target forwards. Leviathan et al. 2023, theorem 3.8, with a verification that need not be free.
    """
    return expected_tokens(alpha, k) / (verify + k * c)


def best_depth(alpha: float, c: float, curve: CostCurve | None = None, deepest: int = 32) -> int:
    """The depth k of highest expected speed, 0 where drafting does not pay; a curve gives verification's cost."""
    return best_length([alpha] * deepest, lambda k: k * c + (1.0 if curve is None else curve(k + 1) / curve(1)))


def lower_quartile(values: Sequence[float]) -> float:
    """The lower quartile: sorted value number n // 4, counted from 0."""
    return sorted(values)[len(values) // 4]


def never_less(places: Sequence[float], values: Sequence[float], at: float) -> float:
    """The same as `interpolated`, but after the last place at least its value: more work takes no less time."""
    found = interpolated(places, values, at)
    return max(found, values[-1]) if at > places[-1] else found


def interpolated(places: Sequence[float], values: Sequence[float], at: float) -> float:
    """Linear between (places, values), extrapolated at both ends."""
    if len(places) == 1:
        return values[0]
    right = min(max(bisect_right(places, at), 1), len(places) - 1)
    x0, x1, y0, y1 = places[right - 1], places[right], values[right - 1], values[right]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
