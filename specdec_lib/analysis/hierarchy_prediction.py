"""Stacks of drafters in one run: what the latency model predicts for each, beside what was measured.

A prediction comes from the levels that `bench/level_run` measured (costs on the machine, acceptances on the run's own
text) and never from the run's rounds. It charges forwards by width, and the four terms of `cost.hierarchy.LevelTerms`:
steps and verifications beyond their forwards, the start of a block, and the drafters' reading of the prompt. A forward
over a drafter's own last token and the one that was emitted after it is charged as one token, and rows that the target
takes over from its own exit are charged twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from specdec_lib.analysis.bench_report import Report, load_report, plain_part
from specdec_lib.analysis.compare import ms_per_token
from specdec_lib.analysis.report_text import times_text
from specdec_lib.analysis.run_place import sure_word
from specdec_lib.bench import summary
from specdec_lib.bench.level_run import FILE
from specdec_lib.cost import hierarchy
from specdec_lib.cost.levels import COMMAND as MEASURE
from specdec_lib.cost.levels import LevelMeasurements, load_levels
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
COMMAND = (f'specdec bench --cost data/cost/smollm2-135m-cpu2-amx-bf16.json --limit 12 --max-new-tokens 64'
           f' --out data/results/hierarchical --methods "{METHODS}"')

SAID = {"step": "steps", "verification": "verifications", "start": "starts", "prompt": "prompts"}      # of the parts
LEVELS = MEASURE.format(folder="data/results/hierarchical")
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
    parts: Mapping[str, float]                     # of what is predicted with it, ms: forwards, and each term

    @property
    def gap(self) -> float:
        """How far the prediction with overshoot lies above what was measured, as a share of it; below 0 if under."""
        return self.renewal_ms / self.measured_ms - 1

    @property
    def forwards_gap(self) -> float:
        """The same for a prediction that counts the forwards alone."""
        return self.parts["forwards"] / self.measured_ms - 1


def named_stack(spec: str) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
    """Drafters and blocks of a method that names both, none for plain decoding; None for any other method."""
    if spec == "ar":
        return (), ()
    name, values = plain_part(spec) or ("", {})
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
                                     sum(ms_per_token(report, spec).values()),
                                     {name: 1000 * part for name, part in levels.parts(*named).items()}))
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
    near, bare = (sum(abs(getattr(one, name)) <= CLOSE for one in found) for name in ("gap", "forwards_gap"))
    chosen = min(found, key=lambda one: one.renewal_ms)
    best = min(found, key=lambda one: one.measured_ms)
    lost = chosen.measured_ms / best.measured_ms - 1
    same = "It is the fastest measured as well." if chosen is best else \
        f"Measured, it takes {lost:.0%} longer a token than the fastest, {shown(best)}."
    gaps = [one.gap for one in found]
    return (f"{near} of {len(found)} predictions lie within {CLOSE:.0%} of what was measured, all between"
            f" {min(gaps):+.1%} and {max(gaps):+.1%} of it; forwards alone would bring {bare} that close. Of these"
            f" stacks {shown(chosen)} is predicted fastest. {same}")


def relative_sentence(found: Sequence[StackComparison]) -> str:
    """The same for times of stacks over plain decoding's, where a change of the machine's speed in between cancels."""
    plain = next((one for one in found if not one.drafters), None)
    stacks = [one for one in found if one.drafters]
    if plain is None or not stacks:
        return "The run has no plain decoding to set stacks against."
    gaps, bare = ([(1 + getattr(one, name)) / (1 + getattr(plain, name)) - 1 for one in stacks]
                  for name in ("gap", "forwards_gap"))
    near, few = (sum(abs(gap) <= CLOSE for gap in some) for some in (gaps, bare))
    return (f"Plain decoding, which has no drafters, is predicted {abs(plain.gap):.1%}"
            f" {'below' if plain.gap < 0 else 'above'} what was measured, and the levels are timed after the run: a"
            f" machine that changes its speed in between moves all predictions. As multiples of plain decoding's time,"
            f" {near} of {len(stacks)} stacks lie within {CLOSE:.0%}, all between {min(gaps):+.1%} and {max(gaps):+.1%}"
            f"; by forwards alone {few} do, between {min(bare):+.1%} and {max(bare):+.1%}.")


def term_rows(levels: LevelMeasurements) -> list[dict]:
    """What each level was measured to take, in ms: a forward of one token, and its terms."""
    said = {"step": "a step beyond its forward", "verification": "a verification beyond its forward",
            "start": "start of a block", "prompt": "reading the prompt, per token"}
    return [{"level": name, "a forward of one token": 1000 * cost(1)}
            | {said[term]: 1000 * value for term, value in own.terms._asdict().items()}
            for name, cost, own in zip(levels.names, levels.curves, levels.costs, strict=True)]


def part_rows(found: Sequence[StackComparison]) -> list[dict]:
    """The predicted ms per token of each stack in parts, beside the measured sum, the fastest measured first."""
    return [{"stack": " + ".join(one.drafters) or "plain decoding", "blocks": ", ".join(map(str, one.blocks)) or "–"}
            | {SAID.get(name, name): part for name, part in one.parts.items()}
            | {"predicted": one.renewal_ms, "measured": one.measured_ms}
            for one in sorted(found, key=lambda one: one.measured_ms)]


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
    apart = "no interval, which needs five prompts" if span is None else \
        f"{sure_word(report)}faster" if span[0] > 1 else "not told apart"
    return f"{said} It is {times_text(ratio, span)} as fast as {shown(rest[0])}: {apart}."


def choice_sentence(names: Sequence[str], costs: hierarchy.Costs, alpha: Sequence[Sequence[float]],
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


def paying_title(gains: Sequence[float]) -> str:
    """At how many costs of the middle model two drafters are predicted faster than one or none, and by how much."""
    pays = sum(gain > 1 for gain in gains)
    most = f", by {max(gains) - 1:.1%} at most" if pays else ""
    return f"A stack of both pays at {pays or 'none'} of {len(gains)} costs of the middle model{most}"


def lowest_sentence(levels: LevelMeasurements, stack: Sequence[str] = ("ngram", "draft-model"),
                    longest: int = hierarchy.LONGEST) -> str:
    """What a token of each drafter was measured to cost, and which stack these costs and acceptances would choose."""
    if not set(stack) <= set(levels.names):
        return f"The levels of this run lack {' or '.join(stack)}."
    places = (*levels.places(stack), len(levels.names) - 1)
    costs, names = [levels.costs[i] for i in places], [levels.names[i] for i in places]
    alpha = [[levels.alpha[i][j] for j in places] for i in places]
    low, middle, target = (one.alone for one in costs)
    return (f"Measured in this run, a token of {stack[0]} costs {low / target:.2f} of a token of plain decoding and one"
            f" of {stack[1]} {middle / target:.2f}: the lower is {low / middle:.2f} times as dear as the upper."
            f" {choice_sentence(names, costs, alpha, longest)}")


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
