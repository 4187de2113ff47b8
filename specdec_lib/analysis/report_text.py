"""The sentences of the report, computed from a finished run: headline, verdicts, intervals as text."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from specdec_lib import catalog
from specdec_lib.analysis.bench_report import Report, entry_spec, first_differences, surely_faster
from specdec_lib.analysis.run_place import chip
from specdec_lib.analysis.wording import digits_beside_one, ends, how_many
from specdec_lib.bench import summary as sums
from specdec_lib.types import Refusal

GIVEN = {"draft": "a draft model", "store": "a static index"}     # needs that are no checkpoints, in words
BUSY = "The machine was busy"                      # begins the warnings that the clock is uncertain


def conclusion_sentences(report: Report) -> list[str]:
    """What a reader takes away: the fastest methods, whether ids stayed the same, and whether the machine was busy."""
    lossy, busy = lossy_headline(report), [said for said in report.warnings if said.startswith(BUSY)]
    ids = equality_sentence(report).partition(", and must:")[0].rstrip(".") + "."
    return [lossless_headline(report), *([lossy.strip()] if lossy else []), ids, *busy[:1]]


def run_text(report: Report) -> str:
    """How much a run measured and how it decoded, in a sentence."""
    settings, count = report.summary["settings"], len(report.methods)
    facts = [counted_text(count, "method") + " beside plain decoding",
             *([f"at most {settings['max_new_tokens']} new tokens a turn"] if "max_new_tokens" in settings else []),
             *([f"repeats: {settings['repeats']}"] if "repeats" in settings else []),
             f"sampled at temperature {settings['temperature']:g}" if settings["temperature"] else "decoded greedily"]
    return f"The run: {', '.join(facts)}."


def other_warnings(report: Report) -> list[str]:
    """The warnings of a run that its conclusion does not hold."""
    said = conclusion_sentences(report)
    return [warning for warning in report.warnings if warning not in said]


def headline(report: Report) -> str:
    """What was measured, on what, and the result; a second sentence for a lossy method that is faster."""
    return lossless_headline(report) + lossy_headline(report)


def lossy_headline(report: Report) -> str:
    """A sentence on the fastest lossy method, where it has the higher speed-up; else nothing."""
    name = report.fastest_of(report.lossy)
    entry, other = report.entries[name], report.entries[report.fastest]
    if name == "ar" or (entry["speedup"] or 0.0) <= (other["speedup"] or 0.0):
        return ""
    return (f" A lossy method, {name}, which may write another text, decoded"
            f" {times_text(entry['speedup'], entry['speedup_ci'])} as fast{doubt_text(entry)}")


def lossless_headline(report: Report) -> str:
    """One sentence on the fastest method that is not lossy."""
    best, entry, about = report.fastest, report.entries[report.fastest], report.summary
    where = f"{about['target']['name']} in {about['target']['dtype']} on {chip_text(about)}"
    said = f"On {counted_text(about['prompts']['count'], 'prompt')} with {where}, "
    if best == "ar":
        rivals = set(report.methods) - set(report.lossy)
        return (f"{said}no {'lossless ' * bool(report.lossy)}method was"
                f" {'faster than' if rivals else 'measured beside'} plain decoding.")
    speed = times_text(entry["speedup"], entry["speedup_ci"])
    return f"{said}{best} decoded {speed} as fast as plain decoding{doubt_text(entry)}"


def chip_text(about: dict) -> str:
    """The device of a run, with the name of its processor or GPU where the summary has it."""
    device, named = about["target"]["device"], chip(about)
    return f"{device} ({named})" if named else device


def doubt_text(entry: dict) -> str:
    """The end of a sentence on a speed-up above 1: why it may be none; only the full stop where it is sure."""
    if surely_faster(entry):
        return "."
    return (", but the interval includes 1: it may be no faster." if entry["speedup_ci"] else
            ", without an interval, which needs five prompts.")


def counted_text(count: int, noun: str) -> str:
    """`1 prompt`, `2 prompts`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def times_text(value: float | None, interval: Sequence[float] | None = None) -> str:
    """`1.72 times (1.51 to 1.93)`."""
    if value is None:
        return "–"
    digits = digits_beside_one(interval or None)
    return f"{value:.{digits}f} times" + (f" ({interval_text(interval)})" if interval else "")


def interval_text(interval: Sequence[float] | None) -> str:
    return "–" if interval is None else ends(interval)


def reason_text(name: str, entry: dict) -> str:
    """How a method drafts, from its own numbers; plain decoding is named where no lossless method is faster."""
    if name == "ar":
        return "not at all: no lossless method was faster"
    kept = entry["tokens_per_target_forward"] - 1              # a round in turn emits one token of the target's own
    said = (f"{kept / (kept + 1):.0%} of its tokens came from drafts" if entry.get("discarded_share") is None else
            f"{entry['discarded_share']:.0%} of what it drafted ahead was discarded")
    whole = "time of all parts, which overlap" if entry.get("time") == "in parallel" else "time"
    return (f"{said}, {entry['width']:.1f} tokens wide; the drafter took {entry['time_share']['drafter']:.0%} of the"
            f" {whole}")


def choice_text(take: str, best: str, ratio: tuple[float | None, Sequence[float] | None], simpler: Sequence[str],
                not_faster: Sequence[str] = ()) -> str:
    """Why this method is taken: how far the fastest may be ahead of it, or what is wrong with the simpler ones.

    `ratio` is that of the fastest over the taken one. `simpler` are the methods simpler than the taken one;
    `not_faster` are those of them that are not told apart from plain decoding, although the fastest is.
    """
    if take != best:
        return (f"the simplest that is not told apart from {best}, which is {times_text(*ratio)} as fast;"
                f" {needs_text(take)}")
    if not simpler:
        return "the fastest, and no method of the run is simpler"
    if not not_faster:
        return f"every simpler method is slower; {needs_text(take)}"
    return f"every simpler method is slower, or not told apart from plain decoding; {needs_text(take)}"


def needs_text(name: str) -> str:
    """What a method needs beside the target: models and checkpoints by their names."""
    needed = models_needed(name)
    if needed is None:
        return "what it needs beside the target is not known here"
    told = [GIVEN.get(one, f"the checkpoint {one}") for one in needed]
    return f"it needs {' and '.join(told) or 'nothing'} beside the target"


def models_needed(name: str) -> list[str] | None:
    """The models and checkpoints that an entry of a run needs beside the target; None if no card has its name."""
    spec = entry_spec(name)
    try:
        cards = catalog.cards_of(spec)
    except Refusal:
        return None
    return list(dict.fromkeys([*catalog.needs(cards), *catalog.named_needs(spec)]))


def simplicity(name: str) -> tuple[bool, float, float]:
    """The lower, the simpler: plain decoding, then the fewest models beside the target, then the fewest parts."""
    needed = models_needed(name)
    if needed is None:
        return True, inf, inf
    return name != "ar", len(needed), sum(len(card.parts) or 1 for card in catalog.cards_of(entry_spec(name)))


def absent_text(report: Report) -> str:
    """The lossless methods of the catalogue that the run does not hold, so that it says nothing of them."""
    held = {entry_spec(name).partition("(")[0].partition("@")[0] for name in report.entries}
    absent = [name for name, card in catalog.methods().items() if card.lossless and name not in held]
    if not absent:
        return "The run holds every lossless method of the catalogue."
    return f"Not in this run, so nothing here says how fast they are: {', '.join(absent)}."


def family_range_text(report: Report, name: str) -> str:
    """On which family a method gains most and least, and in how many it is slower than plain decoding by estimate."""
    speeds = dict(zip(report.families, report.by_family("speedup")[name], strict=True))
    known = {family: speed for family, speed in speeds.items() if speed is not None}
    if not known:
        return f"{name} has no speed-up in any family."
    if len(known) == 1:
        return "".join(f"{name}: {times_text(speed)} on {family}." for family, speed in known.items())
    most, least = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
    below = how_many(speed < 1 for speed in known.values())
    return (f"{name}: {times_text(known[most])} on {most}, {times_text(known[least])} on {least}; below 1 in {below}"
            " families.")


def estimate_text(value: float | None, interval: Sequence[float] | None, signed: bool = False) -> str:
    """`0.412 (0.380 to 0.441)`; with a sign if it is a difference."""
    if value is None:
        return "–"
    form = "+.3f" if signed else ".3f"
    return f"{value:{form}}" + (f" ({interval[0]:{form}} to {interval[1]:{form}})" if interval else "")


def equality_sentence(report: Report) -> str:
    """Whether lossless methods gave plain decoding's output, as far as rounded arithmetic can show."""
    about = report.summary
    if about["settings"]["temperature"]:
        return ("The run sampled: methods may emit other ids of the same distribution, so equality of ids shows"
                " nothing.")
    lossless = [name for name in report.methods if report.entries[name]["lossless"]]
    found = [row for row in first_differences(report) if row["method"] in lossless]
    outputs = sum(report.entries[name]["prompts"] for name in lossless)
    if not lossless:
        return "No lossless method ran beside plain decoding, so no output has to equal it."
    if not found:
        why = ", and must: a row's bits do not depend on the rows computed with it" if about["target"].get(
            "batch_invariant") else ""
        said = f"All {outputs} outputs of lossless methods equal" if outputs > 1 else "The one lossless output equals"
        return f"{said} plain decoding's in every id{why}."
    widest, dtype = max(inf if row["margin (logits)"] is None else row["margin (logits)"] for row in found), \
        about["target"]["dtype"]
    bound = 1e-3 if "32" in dtype or "64" in dtype else 0.5
    if about["target"].get("batch_invariant"):
        return (f"{len(found)} of {outputs} outputs of lossless methods differ from plain decoding, although a row's"
                " bits do not depend on the other rows here: investigate it.")
    verdict = f"at most {widest:.3g} logits between the two best tokens there, a near tie in {dtype}."
    if widest == inf:
        verdict = "and one of them goes on where the other ends: investigate it."
    elif widest >= bound:
        verdict = f"one of them at a margin of {widest:.3g} logits, too wide for a tie in {dtype}: investigate it."
    return f"{len(found)} of {outputs} outputs of lossless methods differ from plain decoding, {verdict}"


def against_generate(report: Report) -> str:
    """Our plain decoding, and the lossless method that is faster, against transformers' `generate`, with intervals."""
    if "hf-generate" not in report.summary["peers"]:
        return "transformers' generate is not in this run; add --peers hf-generate."
    plain = times_text(*sums.speed_ratio(report.decodes, "hf-generate", "ar"))
    best = "" if report.fastest == "ar" else (
        f", and {report.fastest} {times_text(*sums.speed_ratio(report.decodes, 'hf-generate', report.fastest))}")
    target = report.summary["target"]
    other = target.get("dtype_of_transformers")
    dtypes = f" transformers computed in {other}, our decoder in {target['dtype']}." if other else ""
    return f"Against transformers' plain generate in the same run, our plain decoding is {plain} as fast{best}.{dtypes}"


def draft_model_text(report: Report) -> str:
    """Which draft model the run used."""
    if any(name.partition("(")[0].partition("@")[0] == "draft-model" for name in report.entries):
        return report.summary["settings"]["draft"] or "none given: the target's own first layers, untrained"
    return report.summary["settings"]["draft"] or "none: no method needs one"


def checkpoints_text(sums: dict[str, str] | None) -> str:
    """The checkpoints of a run, each with the beginning of its checksum."""
    return ", ".join(f"{name} (SHA-256 {sha256[:16]}…)" for name, sha256 in (sums or {}).items()) or "none"


def node_budget_text(settings: dict) -> str:
    """The node budget of a run by its summary's settings, and whether it followed the machine while it decoded."""
    refitted, nodes = settings.get("refitted_nodes"), settings["nodes"]
    if not refitted:
        return f"The node budget was {nodes} for every prompt"
    low, high = min(refitted), max(refitted)
    told = (f"stayed at {low}" if low == high else
            f"began at {refitted[0]}, lay between {low} and {high}, and ended at {refitted[-1]}")
    return f"The node budget {told}: the curve was refitted to the run's own forwards after each prompt"


def facts_text(facts: dict) -> str:
    """Names and values as a reader writes them: no underscores, no Python truth values; None is left out."""
    def told(value: Any) -> str:
        return ("yes" if value else "no") if isinstance(value, bool) else f"{value:.3g}" if isinstance(value, float) \
            else str(value)

    return ", ".join(f"{key.replace('_gib', ' (GiB)').replace('_', ' ')} {told(value)}"
                     for key, value in facts.items() if value is not None)
