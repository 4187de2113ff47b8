"""Sentences about a finished sweep, their direction taken from its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Parameter, signature

from specdec_lib import catalog
from specdec_lib.analysis import wording
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.analysis.sweep import BestSetting, Sensitivity, SweepRun, best_setting, ranked, sensitivities
from specdec_lib.analysis.sweep_held_out import HeldOutChoice
from specdec_lib.analysis.sweep_measures import MEASURES, NLL, NOT_BEST, SPEED

TIMING = "timing"
LINES = 8                                          # settings that a terminal shows


def headline(run: SweepRun) -> str:
    """What was swept, how much, and whether it was timed."""
    told, count = run.summary["sweep"], len({row["cell"] for row in run.rows})
    seconds = ("Timing cells had their cores for themselves" if told["mode"] == TIMING
               else "Cells were counted and not timed: nothing here is a speed")
    files = ", ".join(dict.fromkeys(row["prompts"] for row in run.rows))
    return (f"{count} cells, settings: {len(run.settings)}, of {', '.join(run.methods)}, on {len(run.questions)}"
            f" prompts of {files}. {seconds}.")


def best_sentence(best: BestSetting | None, measure: str) -> str:
    """The best setting, and how many others it is not told apart from."""
    if best is None:
        return f"No setting has {measure}."
    times = f"{best.value:.2f} ({interval_text(best.interval)})"
    said = (f"{best.label} is the fastest, {times} times plain decoding" if measure == SPEED else
            f"{best.label} has the best {measure}: {times}")
    if best.second is None:
        return f"{said}; there is no other setting."
    lead = (f"{best.label} is not told apart from {best.second}" if best.second in best.not_told_apart else
            f"{best.label} is surely better than {best.second}, without a factor, since one of them is 0"
            if best.lead is None else
            wording.over(best.label, best.lead, best.lead_interval, best.second, "better", "worse"))
    return (f"{said}, chosen on these prompts. {lead}. Settings that it is not told apart from:"
            f" {len(best.not_told_apart)}.")


def best_sentences(run: SweepRun, measure: str, clock: float = 1.0) -> str:
    """The best setting that is lossless, and then the best of all if that is a lossy one, with what it costs."""
    lossless = [label for label, one in run.settings.items() if not one.lossy]
    said = "Every setting is lossy."
    if lossless:
        said = best_sentence(best_setting(run, measure, lossless, clock), measure)
    best = best_setting(run, measure, clock=clock)
    if best is None or not run.settings[best.label].lossy:
        return said
    costs = {name: run.value(best.label, name) for name in (NOT_BEST, NLL)}
    lost = ", ".join(f"{name}: {value:.2f}" for name, value in costs.items() if value is not None)
    return f"{said} Lossy settings may write another text: {best_sentence(best, measure)} It has {lost}."


def marked(run: SweepRun, label: str) -> str:
    """A setting as tables name it: one that is lossy says so."""
    return f"{label} (lossy)" if run.settings[label].lossy else label


def parameters_sentence(run: SweepRun, measure: str, clock: float = 1.0) -> str:
    """How many parameters of each method surely matter, and which."""
    names = [name for name in run.methods if run.parameters(name)]
    if not names:
        return "No parameter has several values here."
    beyond = f" by more than the factor {clock:.2f} between cells of equal work" if clock > 1 else ""
    said = []
    for name in names:
        found = [one for one in sensitivities(run, name, measure) if one.effect is not None]
        sure = matters(found, clock)
        which = f" ({', '.join(one.parameter for one in sure)})" if sure else ""
        said.append(f"{wording.how_many(one in sure for one in found)} of {name}{which}")
    return f"Parameters that surely change {shown(measure)}{beyond}: {'; '.join(said)}."


def chosen_sentence(run: SweepRun, best: BestSetting | None, measure: str) -> str:
    """The best setting on all prompts, and how many of the others it is not told apart from."""
    if best is None:
        return f"No setting has {measure}."
    return (f"Best on all {len(run.questions)} prompts: {marked(run, best.label)}, {best.value:.2f}"
            f" ({interval_text(best.interval)}) {measure}; {len(best.not_told_apart)} of"
            f" {len(ranked(run, measure)) - 1} others are not told apart from it.")


def best_rows(run: SweepRun, measure: str, lines: int = LINES) -> list[dict[str, str]]:
    """The best settings as texts for a terminal, the best first."""
    return [{"setting": marked(run, label), measure: wording.number(run.value(label, measure)),
             "95 %": interval_text(run.interval(label, measure))} for label in ranked(run, measure)[:lines]]


def listed(values: Iterable[object]) -> str:
    """Values of a parameter as a user writes them: a table keeps whole numbers beside others as floats."""
    return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)


def shown(measure: str) -> str:
    """A measure as it stands in a sentence."""
    return "the speed" if measure == SPEED else measure


def counted(found: list[Sensitivity], measure: str, clock: float = 1.0) -> str:
    """How many parameters matter, by the rule of `sensitivity_sentence`: the title of their bars."""
    sure = matters(found, clock)
    known = [one for one in found if one.effect is not None]
    verb = "changes" if len(sure) == 1 or not sure else "change"
    beyond = f" by more than equal work differs (factor {clock:.2f})" if clock > 1 else ""
    return f"{wording.how_many(one in sure for one in known)} parameters surely {verb} {shown(measure)}{beyond}"


def matters(found: list[Sensitivity], clock: float = 1.0) -> list[Sensitivity]:
    """The parameters whose interval lies above 1 and whose effect is beyond the factor that equal work differs by."""
    return [one for one in found if one.effect is not None and one.effect > clock
            and one.interval is not None and one.interval[0] > 1]


def sensitivity_sentence(found: list[Sensitivity], measure: str, clock: float = 1.0) -> str:
    """Which parameters surely matter: by their intervals, and by more than the factor that equal work differs by."""
    if not found:
        return f"No parameter has two values for which {measure} is defined."
    without = [one for one in found if one.effect is None]
    zero = "".join(f" {one.parameter} has no factor, since one of {one.best} and {one.worst} is 0." for one in without)
    known = [(one.effect, one) for one in found if one.effect is not None]
    if not known:
        return zero.strip()
    below = len(matters(found)) - len(matters(found, clock))
    lost = f" The intervals of {below} more lie above 1, and their effects below the factor" \
           f" {clock:.2f} between cells of equal work." if below else ""
    largest, most = known[0]
    return (f"{counted(found, measure, clock)}. The largest"
            f" effect is {most.parameter}'s: {most.best} is {largest:.2f} times as good as {most.worst}"
            f" ({interval_text(most.interval)}), a pair that was chosen on these prompts.{lost}{zero}")


def completed(run: SweepRun, method: str, labels: Iterable[str]) -> dict[str, list]:
    """The swept parameters of a method in each setting; one that a setting does not name ran at its default."""
    takes = signature(catalog.methods()[method].make).parameters if method in catalog.methods() else {}
    usual = {name: one.default for name, one in takes.items() if one.default is not Parameter.empty}
    return {name: [run.settings[label].parameters.get(name, usual.get(name)) for label in labels]
            for name in run.parameters(method)}


def plane_title(names: tuple[str, str], values: list[list[float | None]], measure: str, clock: float = 1.0,
                more_is_better: bool = True) -> str | None:
    """What a plane shows where its best and worst lie as close as equal work; None where it shows more."""
    known = sorted(value for row in values for value in row if value is not None)
    if known[0] == known[-1]:
        return f"{measure} is {known[0]:.2f} everywhere: {names[0]} and {names[1]} do not change it"
    if known[0] <= 0 or known[-1] / known[0] > clock:
        return None
    best = known[-1] if more_is_better else known[0]
    return (f"{shown(measure)}: best {best:.2f}, but the plane spans a factor of {known[-1] / known[0]:.2f}, "
            f"within the {clock:.2f} of equal work")


def held_out_sentence(found: HeldOutChoice | None, measure: str) -> str:
    """How often a choice is best on prompts that it was not made on."""
    if found is None:
        return f"Too few prompts or settings to hold some out: {measure} needs ten prompts and two settings."
    lost = (f"gives up {found.loss:.1%} of the best {shown(measure).removeprefix('the ')}" if found.loss is not None
            else f"what it gives up is no share of the best {measure}, which is 0")
    return (f"Chosen on half of the prompts, a setting is best on the other half in {found.best_again:.0%} of"
            f" {found.draws} random halves (one at random: {found.by_chance:.0%}), and {lost}.")


def front_sentence(run: SweepRun, front: list[str], x: str, y: str) -> str:
    """How many settings lie on the front."""
    better = "; ".join(f"{name}: {'higher' if MEASURES[name].more_is_better else 'lower'} is better" for name in (x, y))
    return f"{len(front)} of {len(run.settings)} settings are beaten by no other in both measures ({better})."
