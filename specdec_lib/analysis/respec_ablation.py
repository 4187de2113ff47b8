"""The ablation of ReSpec: each step adds one part and is compared with the step before, in one interleaved run.

`METHODS` are the methods of such a run. Steps that a run lacks are left out. A method is "faster" if the whole interval
lies above 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from specdec_lib import catalog
from specdec_lib.analysis.bench_report import QUALITIES, Report, load_report, plain_part
from specdec_lib.analysis.compare import Comparison, faster_of, mean_round, method_rounds, parts_sentence
from specdec_lib.analysis.paper_settings import paper_setting
from specdec_lib.analysis.report_text import estimate_text, interval_text, times_text
from specdec_lib.analysis.respec_replay import our_values
from specdec_lib.analysis.run_place import place_sentence
from specdec_lib.analysis.wording import Interval, placed, verdict
from specdec_lib.bench import summary
from specdec_lib.specs import parse_part

METHODS = ("ar,eagle2,sam,sam+eagle2,sam+eagle2@relaxed,sam+eagle2+trigger(theta=1.5),"
           "sam+eagle2+trigger(theta=1.5,match=1),respec(theta=1.5,least=0.3,counts=0.0),respec(least=0.3,counts=0.0),"
           "respec,respec-relaxed,respec+token-recycling")
#          theta=1.5: the one threshold known of the paper, its unit is not; least=0.3: the best if nothing is counted
TRIGGER, CANDIDATES, THRESHOLD, COUNTS = "+ trigger", "+ candidates", "+ our threshold", "+ counts"
RELAXATION = "+ relaxation"
STEP_OF = {"sam+eagle2+trigger": TRIGGER, "respec": COUNTS, "respec-relaxed": RELAXATION}      # method -> its step
ORDER = ("ar", "eagle2", "sam", "sam+eagle2", TRIGGER, CANDIDATES, THRESHOLD, COUNTS, RELAXATION,
         "respec+token-recycling")
CHAIN = ("ar", "eagle2", "sam+eagle2", TRIGGER, CANDIDATES, THRESHOLD, COUNTS, RELAXATION)
PARTS = {TRIGGER: "the entropy trigger", CANDIDATES: "choosing copies by past acceptance, after shorter matches",
         RELAXATION: "relaxed verification"}                           # the paper's three, in words
RIVALS = {"eagle2": "EAGLE-2", "sam+eagle2": "SAM-Decoding"}          # sam+eagle2: with EAGLE-2 for the rest
OTHER = {"AVX2 alone": "respec-avx2", "AMX": "respec-amx"}             # processor -> a kept run
UNCOUNTED = "respec(least=0.3,counts=0.0)"
CLAIMED = {"eagle2": 1.33, "sam": 1.25, "sam+eagle2": 1.25}            # "more than", abstract of arXiv 2511.01282


def ablation_step(spec: str) -> str:
    """The name of a method as an ablation step: its own name or the part it adds; its entry's if `plain_part` is None.

    `respec` with a threshold of its own comes before `respec` with ours, and that before `respec` which counts; a
    paper's setting is no step, nor is the trigger with a match of its own.
    """
    part = plain_part(spec)
    if part is None or paper_setting(spec):
        return paper_setting(spec) or spec
    name, values = part
    if name == "sam+eagle2+trigger" and "match" in values:
        return spec
    if name == "respec" and "theta" in values:
        return CANDIDATES
    return THRESHOLD if name == "respec" and values.get("counts") == 0 else STEP_OF.get(name, name)


def ablation_steps(methods: Iterable[str]) -> dict[str, str]:
    """Step -> spec, in order, for the steps among these methods; a spec of `METHODS` counts, else the first."""
    found: dict[str, str] = {}
    for spec in sorted(methods, key=lambda spec: f",{spec}," not in f",{METHODS},"):
        found.setdefault(ablation_step(spec), spec)
    return {name: found[name] for name in ORDER if name in found}


def versus(report: Report, base: str, other: str, family: str | None = None) -> Comparison:
    """Two methods compared, on one family or on all prompts."""
    ratio = summary.speed_ratio(report.of_family(family), base, other)
    return Comparison(ablation_step(other), ablation_step(base), *ratio)


def step_gains(report: Report) -> list[Comparison]:
    """Every step of the chain compared with the step before it."""
    held = ablation_steps(report.entries)
    chain = [held[name] for name in CHAIN if name in held]
    return [versus(report, base, other) for base, other in zip(chain, chain[1:], strict=False)]


def against_rivals(report: Report, spec: str, rivals: Sequence[str]) -> dict[str, Comparison]:
    """`spec` against the fastest of its rivals, chosen separately for all prompts ("all prompts") and each family."""
    return {family or "all prompts": versus(report, faster_of(report, rivals, family), spec, family)
            for family in (None, *report.families)}


def other_processors(results: str | Path) -> dict[str, Comparison]:
    """Strict ReSpec over SAM-Decoding with EAGLE-2, and over itself without counts, in this folder's other runs."""
    runs = {name: load_report(Path(results) / run, rounds=False) for name, run in OTHER.items()}
    bases = {"over its rival": "sam+eagle2", "over itself without counts": UNCOUNTED}
    return {f"{name}, {said}": versus(report, base, "respec") for name, report in runs.items()
            for said, base in bases.items()}


def claims_table(report: Report) -> list[dict]:
    """The relaxed method against the claims of its paper, a line for each baseline; empty if the run lacks it."""
    held = ablation_steps(report.entries)
    if RELAXATION not in held:
        return []
    return [{"respec-relaxed over": base, "claimed (another target, other hardware)": f"more than {claim:.2f} times",
             "measured here": times_text(one.ratio, one.interval), "so it is": one.verdict,
             "this interval": f"{placed(_as_shown(one.interval), claim)} {claim:.2f}"}
            for base, claim in CLAIMED.items() if base in held
            for one in [versus(report, held[base], held[RELAXATION])]]


def eagle2_step_seconds(report: Report) -> float:
    """Seconds of drafting per tree level, over the rounds that `eagle2` drafted; 0 if it drafted none.

    On a machine as fast as when the run's cost curve was measured: in plain forwards, times the curve's plain forward.
    """
    own = [row for spec in report.entries for row in method_rounds(report, spec) if row.source == "eagle2"]
    plain, curve = [row.target for row in method_rounds(report, "ar")], report.curve
    slower = sum(plain) / len(plain) / curve(1) if plain and curve else 1.0
    return sum(row.what for row in own) / max(1, sum(row.depth for row in own)) / (slower or 1.0)


def step_sentence(report: Report, one: Comparison) -> str:
    """A sentence on a step: its speed ratio, and tokens and milliseconds of a round on both sides."""
    held = ablation_steps(report.entries)
    (tokens, ms), (had, took) = (mean_round(report, held[name]) for name in (one.other, one.base))
    return (f"{one.other} is {times_text(one.ratio, one.interval)} as fast as {one.base}: {one.verdict}. A round emits"
            f" {tokens:.2f} tokens in {ms:.1f} ms, against {had:.2f} in {took:.1f} ms.")


def quality_by_step(report: Report, specs: Sequence[str]) -> dict[str, dict]:
    """The four measures of each method with intervals over prompts, and how many prompts have plain decoding's ids."""
    return {ablation_step(spec): {said: _with_interval(report.entries[spec], key) for key, said in QUALITIES.items()}
            | {"same ids": "{identical_prompts} of {prompts}".format(**report.entries[spec])} for spec in specs}


def quality_changes_text(report: Report, base: str, other: str) -> list[str]:
    """How each measure of quality differs, prompt by prompt, and whether the interval of the difference excludes 0."""
    moved = summary.quality_change(report.decodes, base, other)
    return [f"{said}: {ablation_step(other)} minus {ablation_step(base)} is {estimate_text(*moved[key], signed=True)}, "
            + verdict(moved[key][1], "surely more", "surely less", line=0.0)
            for key, said in QUALITIES.items() if moved[key][0] is not None]


def step_parts(report: Report) -> list[dict]:
    """Every step of the chain: the step before it, what it changes, its factor, and the verdict on it.

    Between two settings of ReSpec all parameters that differ are named, whether the step's name tells of them or not;
    other steps change the method.
    """
    held = ablation_steps(report.entries)
    return [{"step": one.other, "over": one.base, "what it changes": change_text(held[one.base], held[one.other]),
             "times as fast": times_text(one.ratio, one.interval), "so it is": one.verdict}
            for one in step_gains(report)]


def change_text(base: str, other: str) -> str:
    """What differs between two specs: parameters of one method, else the idea of the other method."""
    (one, values), (two, changed) = parse_part(base), parse_part(other)
    if one != two:
        more = ", ".join(f"{name}={value}" for name, value in changed.items())
        return catalog.card_of(other).idea + (f" ({more})" if more else "")
    before, after = our_values(one) | dict(values), our_values(two) | dict(changed)
    return ", ".join(f"{name}: {_shown(before[name])} to {_shown(after[name])}" for name in after
                     if before[name] != after[name])


def verdict_text(report: Report) -> str:
    """Which steps are surely faster, which surely slower, and which the run cannot tell from the step before them."""
    gains = step_gains(report)
    named = {word: [one.other for one in gains if one.verdict == word] for word in
             dict.fromkeys(("faster", "slower", *(one.verdict for one in gains)))}
    return "; ".join(f"{word}: {', '.join(names) or 'none'}" for word, names in named.items())


def conclusion_sentences(report: Report) -> tuple[str, ...]:
    """Which of the paper's parts pay, ReSpec over its rivals beside the paper's claims, and where it was measured.

    A part is judged only where the run holds the step that comes before it in the whole chain.
    """
    held = ablation_steps(report.entries)
    parts = {PARTS[one.other]: one for one in step_gains(report)
             if one.other in PARTS and CHAIN.index(one.other) == CHAIN.index(one.base) + 1}
    return parts_sentence("ReSpec", parts, "the step before", len(PARTS)), _over_rivals(report, held), \
        place_sentence(report)


def _over_rivals(report: Report, held: dict[str, str]) -> str:
    """The last step held, relaxed if it can be, over the paper's rivals, each beside its claim."""
    judged = next((name for name in (RELAXATION, COUNTS) if name in held), "")
    found = [(said, versus(report, held[base], held[judged]), CLAIMED[base]) for base, said in RIVALS.items()
             if judged and base in held]
    if not found:
        return ""
    kind = "Relaxed ReSpec, lossy," if judged == RELAXATION else "Strict ReSpec"
    told = [f"{times_text(one.ratio, one.interval)} as fast as {said}" for said, one, _ in found]
    claims = " and ".join(f"{claim:.2f}" for _, _, claim in found)
    return (f"{kind} is {' and '.join(told)}; the paper claims more than {claims}"
            f"{' with relaxation' * (judged == COUNTS)}.")


def relaxation_text(report: Report, rival: str = "sam+eagle2") -> str:
    """What the relaxed rule gains without ReSpec, and ReSpec beside a rival with the same rule."""
    held, relaxed = ablation_steps(report.entries), f"{rival}@relaxed"
    if RELAXATION not in held or not {rival, relaxed} <= set(report.entries):
        return f"Not in this run: {relaxed}, which has the same relaxed rule without ReSpec."
    pairs = ((held[rival], relaxed), (relaxed, held[RELAXATION]))
    return " ".join(f"{other} is {times_text(one.ratio, one.interval)} as fast as {base}: {one.verdict}."
                    for base, other in pairs for one in [versus(report, base, other)])


def family_title(report: Report) -> str:
    """In how many pairs of a step and a family the step is told apart from the step before it."""
    held = ablation_steps(report.entries)
    chain = [held[name] for name in CHAIN if name in held]
    found = [versus(report, base, other, family).verdict for base, other in zip(chain, chain[1:], strict=False)
             for family in report.families]
    return (f"Of {len(found)} pairs of a step and a family, {found.count('faster')} are faster than the step before"
            f" and {found.count('slower')} slower")


def _as_shown(interval: Interval) -> Interval:
    return interval and (round(interval[0], 2), round(interval[1], 2))


def _shown(value: object) -> str:
    return "the default" if value is None else f"{value}"


def _with_interval(entry: dict, key: str) -> str:
    value = entry[key]
    return "–" if value is None else f"{value:.3f} ({interval_text(entry['quality_ci'][key])})"
