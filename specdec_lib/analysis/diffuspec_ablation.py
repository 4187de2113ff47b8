"""The 2 x 2 ablation of DiffuSpec on one interleaved run: path search and length controller, apart and together.

`METHODS` are the methods of such a run. The spec of a method determines its cell: `diffusion-draft` has neither part,
`weight=1` removes the search, `depth=...` the controller. Missing methods are left out. Two methods are compared by the
interval of their own ratio, paired over prompts. The published figures are in `diffuspec_published`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from specdec_lib import measure
from specdec_lib.analysis import compare, wording
from specdec_lib.analysis.bench_report import Report, plain_part
from specdec_lib.analysis.compare import Comparison
from specdec_lib.analysis.diffuspec_published import (
    ABLATION,
    BOTH,
    CELLS,
    CONTROLLER,
    NEITHER,
    SEARCH,
    AblationCell,
    mean_over_tasks,
)
from specdec_lib.analysis.paper_settings import paper_setting
from specdec_lib.analysis.report_text import interval_text, times_text
from specdec_lib.analysis.run_place import place_sentence
from specdec_lib.bench import summary
from specdec_lib.bench.results import select
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal

METHODS = ("ar,diffusion-draft(depth=4),diffuspec(depth=4),diffuspec(weight=1),diffuspec,diffuspec(rule='printed'),"
           "diffuspec(depth=4,weight=0.9,score='accepted'),diffuspec(drafter='block-diffusion'),diffuspec-tree,"
           "specdiff,specdiff2,diffusion-draft(depth=4,weights='diffusion-lm-aligned'),block-diffusion,eagle,"
           "draft-model,sam+token-recycling,ddtree,ddtree(linked=False),ddtree(drafter='diffusion-lm'),eagle2,"
           "diffuspec(depth=4,first=2),diffuspec(rule='printed',shortest=20,longest=30,growth=10,score='sum')")
NAMES = {NEITHER: "neither", SEARCH: "search", CONTROLLER: "controller", BOTH: "both"}
PRINTED, LESS, TREE = "diffuspec(rule='printed')", "diffuspec(depth=4,weight=0.9,score='accepted')", "diffuspec-tree"
LATER = "diffuspec(depth=4,first=2)"
PAPER = "diffuspec(rule='printed',shortest=20,longest=30,growth=10,score='sum')"
BLOCK = "diffuspec(drafter='block-diffusion')"
JOINED, APART, LIKELIEST = "ddtree", "ddtree(linked=False)", "ddtree(drafter='diffusion-lm')"
ALIGNED = "diffusion-draft(depth=4,weights='diffusion-lm-aligned')"
PLAIN_WEIGHT = 0.5                                 # the search's default, and the paper's
RIVALS = ("block-diffusion", "ddtree", "eagle", "draft-model", "sam+token-recycling")
ALONE = {"the path search": "search, fixed length", "the length controller": "controller, no search"}
Pair = tuple[str, str]                             # specs: the base, and the method compared with it


def read_ablation(run: str, out: str = "", **options) -> tuple[Report, str]:
    """The finished run in the folder `run`, and a sentence on where it comes from; "" measures the options into `out`.

    Refusal if a cell of the ablation is missing, before anything is measured.
    """
    if not run:
        require_all_cells(split_specs(options.get("methods", "")))
    report = compare.read_or_measure(run, out, **options)
    require_all_cells(report.entries)
    return report, f"Read from {run.removeprefix('../')}." if run else "Measured here."


def require_all_cells(specs: Iterable[str]) -> None:
    """Refusal unless these methods fill all four cells."""
    lacking = ", ".join(NAMES[one] for one in CELLS if one not in specs_by_cell(specs))
    if lacking:
        raise Refusal(f"the ablation lacks its cell of {lacking}: it needs diffusion-draft(depth=4),"
                      " diffuspec(depth=4), diffuspec(weight=1) and diffuspec")


def cell_of(spec: str) -> AblationCell | None:
    """The cell of the ablation that a method fills; None if it differs in more than the two parts."""
    name, values = plain_part(spec) or ("", {})
    if name not in ("diffusion-draft", "diffuspec"):
        return None
    if name == "diffusion-draft":
        return None if set(values) - {"depth"} else NEITHER
    weight = values.get("weight", PLAIN_WEIGHT)
    if set(values) - {"depth", "weight"} or weight not in (1, PLAIN_WEIGHT):
        return None
    return AblationCell(weight != 1, "depth" not in values)


def specs_by_cell(specs: Iterable[str]) -> dict[AblationCell, str]:
    """Cell -> spec for the cells that these methods fill, in the order of CELLS; the first spec of a cell counts."""
    found: dict[AblationCell | None, str] = {}
    for spec in specs:
        found.setdefault(cell_of(spec), spec)
    return {one: found[one] for one in CELLS if one in found}


def method_label(spec: str) -> str:
    """The name of a method in tables: the parts it has, that of the paper's setting, or its spec."""
    cell = cell_of(spec)
    return paper_setting(spec) or spec if cell is None else NAMES.get(cell, spec)


def effects(report: Report) -> dict[str, Pair]:
    """The five comparisons of the ablation: each part without and with the other, and both against neither."""
    asked = {"search, fixed length": (NEITHER, SEARCH), "search, with controller": (CONTROLLER, BOTH),
             "controller, no search": (NEITHER, CONTROLLER), "controller, with search": (SEARCH, BOTH),
             "both parts": (NEITHER, BOTH)}
    held = specs_by_cell(report.entries)
    return {name: (held[a], held[b]) for name, (a, b) in asked.items() if a in held and b in held}


def variants(report: Report) -> dict[str, Pair]:
    """Other variants of drafting with a diffusion model, each with the method that it changes."""
    held = specs_by_cell(report.entries)
    plain, search, both = (held.get(one, "") for one in (NEITHER, SEARCH, BOTH))
    asked = {"printed controller over fixed length": (search, PRINTED),
             "corrected controller over printed": (PRINTED, both), "less of the trigram": (search, LESS),
             "search from the second slot": (search, LATER), "that search over none": (plain, LATER),
             "the paper's setting over ours": (both, PAPER),
             "a block drafter's slots": (both, BLOCK), "over the block drafter's own walk": ("block-diffusion", BLOCK),
             "tree over path": (both, TREE), "likeliest tree over that one": (TREE, LIKELIEST),
             "block drafter's tree over its walk": ("block-diffusion", JOINED),
             "its slots joined": (APART, JOINED), "SpecDiff, two steps": (plain, "specdiff"),
             "aligned drafter": (plain, ALIGNED), "SpecDiff-2, aligned chains": (plain, "specdiff2"),
             "its chains alone": (ALIGNED, "specdiff2")}
    return {name: pair for name, pair in asked.items() if set(pair) <= set(report.entries)}


def rivals(report: Report, against: str) -> dict[str, Pair]:
    """A method compared with drafters of other kinds."""
    return {f"over {rival}": (rival, against) for rival in RIVALS if rival in report.entries}


def speed_of_pair(report: Report, pair: Pair, family: str | None = None) -> Comparison:
    """The ratio of speeds, on one family or on all prompts."""
    return Comparison(method_label(pair[1]), method_label(pair[0]),
                      *summary.speed_ratio(report.of_family(family), *pair))


def tokens_of_pair(report: Report, pair: Pair, family: str | None = None) -> Comparison:
    """The ratio of tokens per forward of the target, paired over prompts like the speeds."""
    sides = (list(select(report.of_family(family), method=spec)) for spec in pair)
    base, other = summary.paired(*sides, cost=lambda one: measure.Cost(len(one.outcome.tokens), one.outcome.forwards))
    return Comparison(method_label(pair[1]), method_label(pair[0]), measure.speedup(base, other),
                      measure.speedup_interval(base, other))


def conclusion_sentences(report: Report) -> tuple[str, ...]:
    """Which parts pay beside the drafter alone, both over plain decoding beside the paper's, and where measured."""
    pairs = effects(report)
    parts = {said: speed_of_pair(report, pairs[name]) for said, name in ALONE.items() if name in pairs}
    return compare.parts_sentence("DiffuSpec", parts, "the drafter alone", len(ALONE)), _over_plain(report), \
        place_sentence(report)


def _over_plain(report: Report) -> str:
    """Both parts together over plain decoding, with our values and the paper's, and what the paper has."""
    asked = (specs_by_cell(report.entries)[BOTH], PAPER)
    whole, *theirs = [(report.entries[spec]["speedup"], report.entries[spec]["speedup_ci"]) for spec in asked
                      if spec in report.entries]
    own = "".join(f", and {times_text(*one)} with the paper's values" for one in theirs)
    return (f"{wording.over('DiffuSpec', *whole, 'plain decoding', sure='')}{own}; the paper has"
            f" {ABLATION[BOTH].speed} times, with a 7B drafter for a 32B target.")


def pair_table(report: Report, pairs: dict[str, Pair]) -> dict[str, dict]:
    """Comparisons as a table: the ratios of tokens and of speed, and the conclusion from the interval of the speed."""
    out = {}
    for name, pair in pairs.items():
        tokens, speed = tokens_of_pair(report, pair), speed_of_pair(report, pair)
        times = [wording.number(one.ratio, wording.digits_beside_one(one.interval)) for one in (tokens, speed)]
        out[name] = {"method": speed.other, "against": speed.base, "tokens per forward, times": times[0],
                     "95 % of tokens": interval_text(tokens.interval), "times as fast": times[1],
                     "95 % of speed": interval_text(speed.interval), "so it is": speed.verdict}
    return out


def cell_table(report: Report) -> dict[str, dict]:
    """The four cells, measured here."""
    return {NAMES[one]: {"method": spec, "search": "on" if one.search else "off",
                         "controller": "on" if one.controller else "off",
                         "tokens per forward": report.entries[spec]["tokens_per_target_forward"],
                         "speed-up": report.entries[spec]["speedup"],
                         "95 % interval": interval_text(report.entries[spec]["speedup_ci"])}
            for one, spec in specs_by_cell(report.entries).items()}


def printed_cells() -> dict[str, dict]:
    """The four cells as the paper's Table 2 prints them, beside our means over the tasks of its Table 4."""
    means = {one: mean_over_tasks(one) for one in ABLATION}
    return {NAMES[one]: {"search": "on" if one.search else "off", "controller": "on" if one.controller else "off",
                         "MAT": said.tokens, "speed-up": said.speed, "MAT, mean of Table 4": means[one].tokens,
                         "speed-up, mean of Table 4": means[one].speed} for one, said in ABLATION.items()}


def search_ms(report: Report) -> float | None:
    """Milliseconds a round that the search adds to drafting: fixed length with search less fixed length without.

    None if the run lacks one of the two. It is a difference of two measured means and may be negative.
    """
    held = specs_by_cell(report.entries)
    if not {NEITHER, SEARCH} <= set(held):
        return None
    without, with_it = (part_ms(report, held[one], "what") for one in (NEITHER, SEARCH))
    return with_it - without


def round_ms(report: Report, spec: str) -> dict[str, float]:
    """Milliseconds of a mean round: draft, search if the method has one, target, overhead."""
    name, values = plain_part(spec) or ("", {})
    known = search_ms(report) if name in ("diffuspec", TREE) and values.get("weight") != 1 else None
    share = 0.0 if known is None else known
    what, target = (part_ms(report, spec, part) for part in ("what", "target"))
    return {"draft": what - share, "search": share, "target": target,
            "overhead": part_ms(report, spec, "when") + part_ms(report, spec, "how")}


def pair_sentence(report: Report, pair: Pair, family: str | None = None) -> str:
    """A sentence with tokens and milliseconds of a round on both sides, on one family or on all prompts."""
    (had, took), (tokens, ms) = (compare.mean_round(report, spec, family) for spec in pair)
    return f"{tokens:.2f} tokens a round in {ms:.1f} ms, against {had:.2f} in {took:.1f} ms"


def speed_and_tokens_text(report: Report, pair: Pair, other: str, base: str) -> str:
    """Whether the pair's second method, `other` in words, is faster than its first, and its tokens per forward."""
    tokens, speed = tokens_of_pair(report, pair), speed_of_pair(report, pair)
    return (f"{wording.over(other, speed.ratio, speed.interval, base, sure='')},"
            f" with {times_text(tokens.ratio, tokens.interval)} its tokens per forward")


def depth_text(report: Report, depth: int = 3) -> str:
    """What the search does to acceptance at the first token and at a deeper one, and how many drafts get that deep."""
    held = specs_by_cell(report.entries)
    without, with_it = (report.entries[held[one]]["conditional_acceptance"] if one in held else []
                        for one in (NEITHER, SEARCH))
    if min(len(without), len(with_it)) < depth:
        return f"No draft of both cells got to depth {depth}."
    reached = [math.prod(rates[:depth - 1]) for rates in (with_it, without)]
    return (f"At a fixed length the first token is accepted in {with_it[0]:.0%} of the drafts with the search and in "
            f"{without[0]:.0%} without it. At depth {depth} it is {with_it[depth - 1]:.0%} against "
            f"{without[depth - 1]:.0%}, of the {reached[0]:.0%} and {reached[1]:.0%} of the drafts that get that deep.")


def part_ms(report: Report, spec: str, part: str) -> float:
    """Milliseconds that one part of a mean round takes: when, what, target or how."""
    own = compare.method_rounds(report, spec)
    return 1000 * sum(getattr(row, part) for row in own) / len(own)
