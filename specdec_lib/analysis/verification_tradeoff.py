"""Speed against quality of verification rules, from one interleaved run: for each drafter a curve for every rule.

`methods_to_run` gives the methods of such a run. A spec names the rule behind an `@`; without one it is the method's
own. Every lossy rule is compared, paired over prompts, with plain decoding and with the lossless rule of the same
drafter: its speed beyond that rule is what the loss of quality pays for.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specdec_lib import catalog
from specdec_lib.analysis.bench_report import QUALITIES, Report, load_report
from specdec_lib.bench import summary
from specdec_lib.bench.runners import WARM
from specdec_lib.cards import Card
from specdec_lib.specs import parse_part
from specdec_lib.types import Refusal

HEAD = ("eagle", "eagle@match", "eagle@relaxed(sources=('eagle',),margin=0.7)",
        "eagle@relaxed(sources=('eagle',),margin=0.5)", "eagle@relaxed(sources=('eagle',),margin=0.1)",
        "eagle@typical(eps=0.3)", "eagle@typical", "eagle@typical(eps=0.02)", "eagle@top-beta(tolerance=0.3)",
        "eagle@top-beta", "eagle@top-beta(beta=5,tolerance=3.0)", "eagle@consultant(eps=0.5)",
        "eagle@consultant(eps=1.0)", "eagle@consultant")
COPY = ("sam+token-recycling", "sam+token-recycling@relaxed(sources=('suffix-automaton','token-recycling'))",
        "sam+token-recycling@relaxed(sources=('suffix-automaton','token-recycling'),margin=0.1)",
        "sam+token-recycling@typical", "sam+token-recycling@typical(eps=0.02)", "sam+token-recycling@top-beta",
        "sam+token-recycling@top-beta(beta=5,tolerance=3.0)", "sam+token-recycling@consultant(eps=1.0)",
        "sam+token-recycling@consultant")
OWN = {"respec-relaxed": ("respec", "relaxed")}    # methods that are another method under another rule
LOOSER = {"relaxed": (("margin", -1), ("rank", 1)), "relaxed, typical": (("eps", -1), ("delta", -1)),
          "typical": (("eps", -1), ("delta", -1)), "top-beta": (("tolerance", 1), ("beta", 1)),
          "consultant": (("eps", 1),)}             # rule -> parameters that loosen it, 1: by growing, -1: by shrinking
NOISE = 2e-5                                       # of kept numbers, which are rounded: a smaller change is none


class Estimate(NamedTuple):
    """A number with its 95 % interval over prompts; None if it is undefined or there are too few prompts."""

    value: float | None
    interval: Sequence[float] | None = None

    def sign(self, around: float = 0.0) -> int:
        """1 or -1 if the whole interval lies above or below `around`, else 0."""
        if self.interval is None:
            return 0
        low, high = self.interval
        return (low > around + NOISE) - (high < around - NOISE)


class RulePoint(NamedTuple):
    """One method of the run: a drafter under one setting of one rule."""

    spec: str
    drafter: str
    rule: str
    values: Mapping[str, Any]                      # of the rule, as the spec gives them
    lossless: bool
    tokens: float                                  # per forward of the target
    not_best: float | None                         # of 100 emitted tokens
    speed: Estimate                                # times plain decoding
    base: str                                      # the lossless method of this drafter; "" if the run has none
    over: Estimate                                 # times that one
    quality: Mapping[str, Estimate]                # gate -> its value
    change: Mapping[str, Estimate]                 # gate -> less plain decoding's
    loss: Mapping[str, Estimate]                   # gate -> less that of the lossless method

    @property
    def label(self) -> str:
        """The rule with its given parameters, without the drafters that it applies to."""
        given = ", ".join(f"{name} {value}" for name, value in self.values.items() if name not in ("sources", "rule"))
        return f"{self.rule} ({given})" if given else self.rule


def read_rules(run: str, temperature: float = 0.0) -> tuple[Report, str]:
    """The finished run in the folder `run`, and a sentence on where it comes from.

    Refusal for a run without a lossy rule, with the command that measures one at this temperature.
    """
    found = load_report(run)
    if all(entry["lossless"] is not False for entry in found.entries.values()):
        raise Refusal(f"the run in {run} has no lossy rule: measure one with `{command_to_run(run, temperature)}`")
    return found, f"A finished run, from {Path(run).name}."


def methods_to_run(temperature: float = 0.0) -> str:
    """The methods of a run at this temperature: at 0 both drafters, without `typical`, which is match there.

    Above 0 only `eagle`, whose drafts are sampled from a distribution, and every rule with all its settings.
    """
    if temperature:
        return ",".join(("ar", *HEAD))
    return ",".join(("ar", *(spec for spec in (*HEAD, *COPY) if "typical(" not in spec)))


def command_to_run(run: str, temperature: float = 0.0) -> str:
    """The command that measures such a run."""
    heat = f" --temperature {temperature:g}" if temperature else ""
    out = Path(run).name or f"verification{'-sampled' * bool(temperature)}"
    return ("specdec bench --dtype float32 --cost data/cost/smollm2-135m-cpu2-fp32.json --limit 24 --max-new-tokens 96"
            f'{heat} --methods "{methods_to_run(temperature)}" --out results/{out}')


def parse_rule_spec(spec: str) -> tuple[str, str, dict[str, Any]]:
    """A method as drafter, rule and the rule's parameters."""
    parsed = catalog.method_spec(spec)
    if "how" in parsed.replaced:
        rule, its = parsed.replaced["how"]
        drafter = "@".join(piece for piece in spec.split("@") if parse_part(piece).name != rule)
    elif parsed.name in OWN:
        (drafter, rule), its = OWN[parsed.name], parsed.method.values
    else:
        rule, its, drafter = own_rule(catalog.methods()[parsed.name]), {}, spec
    return drafter, rule + (f", {its['rule']}" if "rule" in its else ""), its


def own_rule(card: Card) -> str:
    """The rule in a method's card; "" if it names none."""
    return next((part for part in card.parts if part in catalog.parts()["how"]), "")


def rule_points(report: Report) -> tuple[RulePoint, ...]:
    """A point for every method but plain decoding and warm streams, in the order of the run."""
    specs = [spec for spec in report.methods if not spec.endswith(tuple(f" ({warm})" for warm in WARM.values()))]
    return tuple(rule_point(report, spec, [other for other in specs if report.entries[other]["lossless"]])
                 for spec in specs)


def rule_point(report: Report, spec: str, lossless: Sequence[str]) -> RulePoint:
    """One method compared with plain decoding and with its drafter's lossless method, one of `lossless`."""
    (drafter, rule, values), entry = parse_rule_spec(spec), report.entries[spec]
    base = lossless_spec(drafter, lossless)
    over = Estimate(*summary.speed_ratio(report.decodes, base, spec)) if base else Estimate(None)
    change, loss = (quality_change_estimates(report, other, spec) if other else {} for other in ("ar", base))
    return RulePoint(spec, drafter, rule, values, spec in lossless, entry["tokens_per_target_forward"],
                     entry.get("not_best_per_100"), Estimate(entry["speedup"], entry["speedup_ci"]), base, over,
                     {gate: Estimate(entry[gate], entry["quality_ci"][gate]) for gate in QUALITIES}, change, loss)


def quality_change_estimates(report: Report, base: str, spec: str) -> dict[str, Estimate]:
    """Measure -> its change from `base` to `spec`, paired over prompts."""
    return {gate: Estimate(*moved) for gate, moved in summary.quality_change(report.decodes, base, spec).items()}


def lossless_spec(drafter: str, lossless: Iterable[str]) -> str:
    """The lossless method of this drafter: its own rule if that is lossless, else the first one; "" if none."""
    found = [spec for spec in lossless if parse_rule_spec(spec)[0] == drafter]
    return drafter if drafter in found else next(iter(found), "")


def drafters_with_lossy_rule(some: Iterable[RulePoint]) -> list[str]:
    """Drafters with a lossy rule in the run."""
    return list(dict.fromkeys(one.drafter for one in some if not one.lossless))


def rule_curves(some: Iterable[RulePoint], drafter: str) -> dict[str, list[RulePoint]]:
    """Rule -> its settings on this drafter, the strictest first; lossless rules before lossy ones."""
    out: dict[str, list[RulePoint]] = {}
    for one in sorted((one for one in some if one.drafter == drafter), key=lambda one: not one.lossless):
        out.setdefault(one.rule, []).append(one)
    return {rule: sorted(own, key=looseness) for rule, own in out.items()}


def looseness(one: RulePoint) -> tuple[float, ...]:
    """The sort key of a rule's settings; a rule that is not in `LOOSER` keeps the run's order."""
    defaults = rule_defaults(one.rule.partition(",")[0])
    return tuple(sign * one.values.get(name, defaults.get(name, 0)) for name, sign in LOOSER.get(one.rule, ()))


def rule_defaults(rule: str) -> dict[str, Any]:
    """The defaults of a rule's parameters."""
    card = catalog.parts()["how"].get(rule)
    return {} if card is None else {name: one.default for name, one in inspect.signature(card.make).parameters.items()}
