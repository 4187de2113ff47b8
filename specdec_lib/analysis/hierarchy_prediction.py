"""Stacks of drafters in one run: what the latency model predicts for each, beside what was measured.

A prediction comes from the levels that `bench/level_run` measured (costs on the machine, acceptances on the run's own
text) and never from the run's rounds. It counts forwards and reading of rows; the rule, the bookkeeping of the loop and
the drafters' prompt forwards are in the measured time only. A forward over a drafter's own last token and the one that
was emitted after it is charged as one token, and rows that the target takes over from its own exit are charged twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from specdec_lib.analysis.bench_report import Report, load_report
from specdec_lib.analysis.compare import ms_per_token
from specdec_lib.analysis.report_text import times_text
from specdec_lib.bench import summary
from specdec_lib.bench.level_run import FILE
from specdec_lib.cost import hierarchy
from specdec_lib.cost.levels import LevelMeasurements, load_levels
from specdec_lib.specs import parse_part
from specdec_lib.types import Refusal

STACKS = (("draft-model", (1,)), ("draft-model", (2,)), ("draft-model", (4,)), ("ngram", (1,)), ("ngram", (2,)),
          ("early-exit", (1,)), ("ngram+draft-model", (1, 2)), ("ngram+draft-model", (2, 3)),
          ("ngram+draft-model", (4, 6)), ("draft-model+early-exit", (1, 2)), ("draft-model+early-exit", (2, 4)),
          ("ngram+early-exit", (2, 3)), ("ngram+draft-model+early-exit", (1, 2, 3)))
CLOSE = 0.10                                       # how far a prediction may lie from what was measured


def stack_spec(stack: str, blocks: Sequence[int]) -> str:
    """The spec of a stack with these blocks."""
    return f"hierarchical(stack={stack!r},blocks={tuple(blocks)!r})".replace(" ", "")


METHODS = ",".join(["ar", *(stack_spec(*one) for one in STACKS)])
COMMAND = (f'specdec bench --dtype float32 --cost data/cost/smollm2-135m-cpu2-fp32.json --limit 12 --max-new-tokens 64'
           f' --out data/results/hierarchical --methods "{METHODS}"')

LEVELS = ("python -c \"from specdec_lib.bench.level_run import measure_run_levels as m;"
          " m('data/results/hierarchical')\"")
HOW = f"This measures one, in the repository's root: `{COMMAND}`, and then its levels: `{LEVELS}`."


class StackComparison(NamedTuple):
    """One stack: predicted and measured tokens per target forward and milliseconds per token."""

    spec: str
    drafters: tuple[str, ...]                      # empty: plain decoding
    blocks: tuple[int, ...]
    predicted_tokens: float                        # with overshoot
    measured_tokens: float
    simple_ms: float                               # predicted without overshoot
    renewal_ms: float                              # predicted with it
    measured_ms: float

    @property
    def gap(self) -> float:
        """How far the prediction with overshoot lies above what was measured, as a share of it; below 0 if under."""
        return self.renewal_ms / self.measured_ms - 1


def named_stack(spec: str) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
    """Drafters and blocks of a method that names both, none for plain decoding; None for any other method."""
    if spec == "ar":
        return (), ()
    name, values = ("", {}) if "@" in spec else parse_part(spec)
    if name != "hierarchical" or not {"stack", "blocks"} <= set(values):
        return None
    return tuple(values["stack"].split("+")), tuple(values["blocks"])


def stack_comparisons(report: Report, levels: LevelMeasurements) -> list[StackComparison]:
    """Plain decoding and every stack of the run whose drafters were measured, in the run's order.

    A stack over copies of the text has no prediction and is left out: copies have no distribution to overlap.
    """
    found: list[StackComparison] = []
    for spec, entry in report.entries.items():
        named = named_stack(spec)
        if named is None or not set(named[0]) <= set(levels.names[:-1]):
            continue
        turn = levels.renewal(*named)
        found.append(StackComparison(spec, *named, turn.tokens, entry["tokens_per_target_forward"],
                                     1000 * levels.simple(*named), 1000 * turn.time / turn.tokens,
                                     sum(ms_per_token(report, spec).values())))
    return found


def comparison_rows(found: Sequence[StackComparison]) -> list[dict]:
    """A row for each stack, predictions and measurements in columns of their own, the fastest measured first."""
    return [{"stack": " + ".join(one.drafters) or "plain decoding", "blocks": ", ".join(map(str, one.blocks)) or "–",
             "tokens per forward, predicted": one.predicted_tokens,
             "tokens per forward, measured": one.measured_tokens,
             "ms per token, predicted, simple": one.simple_ms, "ms per token, predicted, renewal": one.renewal_ms,
             "ms per token, measured": one.measured_ms, "predicted over measured": f"{one.gap:+.0%}"}
            for one in sorted(found, key=lambda one: one.measured_ms)]


def prediction_sentence(found: Sequence[StackComparison]) -> str:
    """How many predictions are close, and how much slower than the measured best the predicted best is."""
    near = sum(abs(one.gap) <= CLOSE for one in found)
    chosen = min(found, key=lambda one: one.renewal_ms)
    best = min(found, key=lambda one: one.measured_ms)
    lost = chosen.measured_ms / best.measured_ms - 1
    same = "It is the fastest measured as well." if chosen is best else \
        f"Measured, it takes {lost:.0%} longer a token than the fastest, {shown(best)}."
    return (f"{near} of {len(found)} predictions lie within {CLOSE:.0%} of what was measured. Of these stacks"
            f" {shown(chosen)} is predicted fastest. {same}")


def depth_sentence(report: Report, found: Sequence[StackComparison]) -> str:
    """Whether the fastest measured stack has one drafter, several or none, against the best of another size."""
    ranked = sorted(found, key=lambda one: one.measured_ms)
    best = ranked[0]
    rest = [one for one in ranked if (len(one.drafters) > 1) != (len(best.drafters) > 1)]
    size = {0: "no drafter", 1: "one drafter"}.get(len(best.drafters), f"{len(best.drafters)} drafters")
    said = f"The fastest measured has {size}: {shown(best)}."
    if not rest:
        return said
    ratio, span = summary.speed_ratio(report.decodes, rest[0].spec, best.spec)
    apart = "no interval, which needs five prompts" if span is None else "surely faster" if span[0] > 1 else \
        "not told apart"
    return f"{said} It is {times_text(ratio, span)} as fast as {shown(rest[0])}: {apart}."


def choice_sentence(names: Sequence[str], costs: Sequence[hierarchy.Price], alpha: Sequence[Sequence[float]],
                    longest: int = hierarchy.LONGEST) -> str:
    """Which stack is predicted best with overshoot, and what the best of another size would lose, in one sentence.

    One drafter or none stands against two; `names`, `costs` and `alpha` have the target last.
    """
    plain = hierarchy.renewal_latency(costs, alpha, (), ())
    few, two = (hierarchy.best_by_renewal(costs, alpha, longest, sizes) for sizes in ((0, 1), (2,)))
    best, other = (few, two) if few.latency <= two.latency else (two, few)

    def words(plan: hierarchy.StackPlan) -> str:
        stack = " under ".join(f"{names[i]} (T = {block})" for i, block in zip(plan.drafters, plan.blocks, strict=True))
        return stack or "plain decoding"

    size = {0: "no drafter", 1: "one drafter"}.get(len(best.drafters), "two drafters")
    return (f"By these costs and acceptances {size} would be best: {words(best)}, predicted {plain / best.latency:.2f}"
            f" times as fast as plain decoding; {words(other)} {plain / other.latency:.2f} times.")


def shown(one: StackComparison) -> str:
    """A stack in words."""
    if not one.drafters:
        return "plain decoding"
    return f"{' + '.join(one.drafters)} with blocks of {', '.join(map(str, one.blocks))}"


def read_stack_run(folder: str | Path) -> tuple[Report, LevelMeasurements] | None:
    """The run in this folder and its measured levels; None without a folder, Refusal if its levels are missing."""
    if not Path(folder).is_dir():
        return None
    report, levels = load_report(folder), load_levels(Path(folder) / FILE)
    if len(stack_comparisons(report, levels)) < 2:
        raise Refusal(f"the run in {folder} has no stack of measured drafters beside plain decoding: {COMMAND}")
    return report, levels
