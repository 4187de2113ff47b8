"""Exit layer by draft length: the speed of each pair, predicted from costs and measured in a run.

A round that drafts k tokens from an exit takes k steps and one verification, in units of plain forwards. `below` is the
share of a forward in the layers below the exit, `head` the cost of the exit's own head, T(n) a forward over n tokens:

    step            below + head                                one row up to the exit
    verification    below + (1 - below) T(k + 1) / T(1)         below it only the last token, above it all k + 1
    speed           (1 + a1 + a1 a2 + ... + a1..ak) / (k step + verification)

where a_d is the acceptance probability at depth d. Source: the reuse of rows is from LayerSkip (Elhoushi et al. 2024),
speed as tokens over costs from Leviathan et al. 2023, theorem 3.8. Splitting T over layers in proportion is ours; at
depth 5 it lies within a tenth of the measurement in the card of the shipped exits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path

from specdec_lib.analysis.bench_report import Report, load_report, plain_part
from specdec_lib.analysis.report_text import counted_text, times_text
from specdec_lib.analysis.wording import how_many, verdict
from specdec_lib.bench import summary
from specdec_lib.types import Refusal

LAYERS, DEPTHS = (5, 10, 15), (1, 2, 3, 4, 5)      # the shipped exits, and the depths in their card
METHODS = ",".join(["ar", *(f"early-exit(layer={layer},depth={depth})" for layer in LAYERS for depth in DEPTHS)])
COMMAND = (f'specdec bench --cost data/cost/smollm2-135m-cpu2-bf16.json --limit 12 --max-new-tokens 96 --methods'
           f' "{METHODS}" --out data/results/early-exit')
Rates = Sequence[float | None]                     # acceptance at depth 1, 2, ...; None if no draft reached it


@dataclass(frozen=True)
class ExitCosts:
    """The costs of an exit in plain forwards, and its acceptance rate at each depth."""

    below: float
    head: float
    rates: Rates

    def __post_init__(self):
        if not 0 <= self.below <= 1 or not self.head >= 0 or not all(0 <= (rate or 0.0) <= 1 for rate in self.rates):
            raise Refusal(f"an exit lies between 0 and 1 of a forward, its head costs zero or more and its rates are "
                          f"probabilities, got {self}")


@dataclass(frozen=True)
class ExitGrid:
    """Speeds in times plain decoding: `speeds[layer][depth]`, None for an unknown cell; `spans` likewise."""

    layers: tuple[int, ...]
    depths: tuple[int, ...]
    speeds: tuple[tuple[float | None, ...], ...]
    spans: tuple[tuple[Sequence[float] | None, ...], ...] = ()       # 95 % intervals of measured grids

    @property
    def best(self) -> tuple[int, int, float]:
        """Layer, depth and speed of the fastest cell; in a tie the lower exit and the shorter draft."""
        known = [(speed, layer, depth) for layer, row in zip(self.layers, self.speeds, strict=True)
                 for depth, speed in zip(self.depths, row, strict=True) if speed is not None]
        if not known:
            raise Refusal("no cell of this grid is known")
        speed, layer, depth = max(known, key=lambda cell: (cell[0], -cell[1], -cell[2]))
        return layer, depth, speed


def round_cost(depth: int, below: float, head: float, verify: float) -> float:
    """Plain forwards that a round of `depth` drafted tokens costs; `verify` is T(depth + 1) / T(1) over all layers."""
    if depth < 0:
        raise Refusal(f"a draft has zero tokens or more, got {depth}")
    if not depth:
        return 1.0                                 # no draft, so no rows below the exit to reuse
    return depth * (below + head) + below + (1 - below) * verify


def tokens_per_round(rates: Rates, depth: int) -> float:
    """Expected tokens of a round with chains of `depth`; an unknown rate counts as 0."""
    return 1 + sum(accumulate(((rate or 0.0) for rate in rates[:depth]), mul))


def predicted_grid(exits: Mapping[int, ExitCosts], seconds: Callable[[int], float],
                   depths: Iterable[int] = DEPTHS) -> ExitGrid:
    """The grid predicted from costs and acceptance; `seconds(n)` is T(n) in any unit, such as a cost curve."""
    depths, layers = tuple(depths), tuple(sorted(exits))

    def speed(one: ExitCosts, depth: int) -> float:
        return tokens_per_round(one.rates, depth) / round_cost(depth, one.below, one.head,
                                                               seconds(depth + 1) / seconds(1))
    return ExitGrid(layers, depths, tuple(tuple(speed(exits[layer], depth) for depth in depths) for layer in layers))


def cell_specs(specs: Iterable[str]) -> dict[tuple[int, int], str]:
    """(layer, depth) -> spec, for the specs that set both and nothing else."""
    found: dict[tuple[int, int], str] = {}
    for spec in specs:
        name, values = plain_part(spec) or ("", {})
        if name == "early-exit" and set(values) == {"layer", "depth"}:
            found.setdefault((values["layer"], values["depth"]), spec)
    return dict(sorted(found.items()))


def measured_grid(report: Report) -> ExitGrid:
    """The grid of a run with the intervals of every cell; Refusal if the run has no cell."""
    found = cell_specs(report.entries)
    if not found:
        raise Refusal(f"this run has no early-exit(layer=...,depth=...): measure {METHODS}")
    layers, depths = (tuple(sorted(set(side))) for side in zip(*found, strict=True))

    def column(key: str) -> tuple:
        return tuple(tuple(report.entries[found[layer, depth]][key] if (layer, depth) in found else None
                           for depth in depths) for layer in layers)
    return ExitGrid(layers, depths, column("speedup"), column("speedup_ci"))


def acceptance_by_depth(report: Report) -> dict[int, list[float]]:
    """Acceptance by depth for every exit of a run, from its longest drafts."""
    longest = {layer: spec for (layer, _), spec in cell_specs(report.entries).items()}
    return {layer: report.entries[spec]["conditional_acceptance"] for layer, spec in longest.items()}


def grid_sentence(report: Report) -> str:
    """A sentence on the best cell of a run, compared with plain decoding and with the second best."""
    found, entries = cell_specs(report.entries), report.entries
    first, *rest = sorted(found.values(), key=lambda spec: -(entries[spec]["speedup"] or 0.0))
    best = entries[first]
    said = f"Measured, {first} is {times_text(best['speedup'], best['speedup_ci'])} as fast as plain"
    if not rest:
        return f"{said} decoding."
    ratio, span = summary.speed_ratio(report.decodes, rest[0], first)
    apart = "no interval, which needs five prompts" if span is None else "so faster" if span[0] > 1 else \
        "not told apart"
    return f"{said} decoding and {times_text(ratio, span)} as fast as {rest[0]}, the next: {apart}."


def exit_findings(rates: Mapping[int, Rates], report: Report | None) -> list[str]:
    """What exits predict, from their acceptance by depth, and how many measured cells are told from plain decoding."""
    first = [f"{own[0] or 0.0:.0%} after layer {layer}" for layer, own in rates.items() if own]
    said = [f"On the card's held-out prompts the target accepts of first drafted tokens {', '.join(first)}."]
    if report is None:
        return said
    grid = measured_grid(report)
    words, (layer, depth, speed) = [verdict(span) for row in grid.spans for span in row if span], grid.best
    told = times_text(speed, grid.spans[grid.layers.index(layer)][grid.depths.index(depth)])
    return [*said, f"Measured, {how_many(word == 'faster' for word in words)} settings of exit and draft length are"
                   f" faster than plain decoding by their 95 % interval, {how_many(word == 'slower' for word in words)}"
                   f" slower.",
            f"The fastest, {counted_text(depth, 'token')} from layer {layer}, is {told} as fast as plain decoding."]


def read_grid_run(folder: str | Path) -> tuple[Report | None, str]:
    """The run in this folder and a sentence on it; without a folder None and the command that measures one."""
    if not Path(folder).is_dir():
        return None, (f"Nothing is measured yet: no run lies at {folder}. This measures one, in the repository's root:"
                      f" `{COMMAND}`")
    report = load_report(folder)
    measured_grid(report)
    return report, grid_sentence(report)
