"""A finished canvas run -> frames to draw, acceptance of drafted rows, and rules side by side at matched forwards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from specdec_lib.analysis.report_text import estimate_text, times_text
from specdec_lib.analysis.wording import Interval, number, over, trend, verdict
from specdec_lib.bench.canvas_results import CanvasRun
from specdec_lib.bench.canvas_summary import solved_difference
from specdec_lib.canvas.catalog import canvas_cards, canvas_spec, value_of
from specdec_lib.canvas.text_quality import distinct_ngrams
from specdec_lib.canvas.types import CanvasRound, CanvasSession
from specdec_lib.measure import change_interval
from specdec_lib.types import Refusal

Name = Callable[[int], str]
UNCERTAIN = 0.05                                   # of speed ratios, beyond their intervals: methods ran one by one


class CanvasFrame(NamedTuple):
    """What `figures.canvas_grid` draws of one step: a word, a confidence and a role for every position."""

    words: tuple[str, ...]
    confidence: tuple[float | None, ...]
    roles: tuple[str, ...]


def frame(session: CanvasSession, step: int, name: Name = str) -> CanvasFrame:
    """The canvas after `step` rounds (0: as it was given); roles are those of the last of these rounds."""
    rounds = session.rounds[:step]
    canvases = session.canvases()
    before, canvas = canvases[max(0, step - 1)], canvases[step]
    known: dict[int, float] = {}
    for one in rounds:
        known |= dict(zip(one.positions, one.confidences, strict=True))
    roles = dict.fromkeys(set(range(len(canvas))) - set(canvas.area) | {
        at for at in canvas.area if session.start.tokens[at] != canvas.mask}, "given")
    if rounds:
        roles |= round_roles(rounds[-1], before.tokens)
    words = tuple("" if token == canvas.mask else name(token) for token in canvas.tokens)
    return CanvasFrame(words, tuple(known.get(at) if word else None for at, word in enumerate(words)),
                       tuple(roles.get(at, "") for at in range(len(canvas))))


def round_roles(one: CanvasRound, before: Sequence[int]) -> dict[int, str]:
    """Position -> what the round did to it: new, kept or revised where it was hidden and decided again, or hidden."""
    hidden = frozenset(one.hidden)
    roles = dict.fromkeys(one.hidden, "hidden")
    for position, token in zip(one.positions, one.tokens, strict=True):
        roles[position] = "new" if position not in hidden else "kept" if before[position] == token else "revised"
    return roles


def accepted_at_least(run: CanvasRun, method: str) -> list[float]:
    """The share of drafting rounds that wrote at least 1, 2, ... tokens, over the kept tasks; [] where none drafted."""
    sizes = [len(one.positions) for decode in run.of(method) for one in decode.rounds if one.drafted]
    return [sum(size >= n for size in sizes) / len(sizes) for n in range(1, max(sizes, default=0) + 1)]


def spec_values(method: str) -> dict:
    """The parameters that a method of a run was made with."""
    return canvas_spec(method).values


def kind_of(method: str) -> str:
    """The method without its number of forwards, so that lines over forwards can be drawn."""
    part = canvas_spec(method)
    rest = ", ".join(f"{name}={value!r}" for name, value in part.values.items() if name != "forwards")
    return f"{part.name}({rest})" if rest else part.name


def by_forwards(run: CanvasRun, family: str | None = None) -> dict[str, dict[int, tuple[float, Interval]]]:
    """Kind of method -> total forwards -> (solved share, interval), for methods with a budget and known answers."""
    out: dict[str, dict[int, tuple[float, Interval]]] = {}
    for method, entry in run.summary["methods"].items():
        budget, found = spec_values(method).get("forwards"), entry if family is None else entry["by_family"][family]
        if budget is not None and found["solved"] is not None:
            out.setdefault(kind_of(method), {})[budget] = found["solved"], found["solved_ci"]
    return out


class MatchedGain(NamedTuple):
    """Two methods with the same budget of forwards: solved shares, the paired difference, and what it supports."""

    forwards: int
    base: float
    other: float
    difference: float
    interval: Interval

    @property
    def verdict(self) -> str:
        return verdict(self.interval, "more solved", "fewer solved", line=0.0)


def matched_gains(run: CanvasRun, kind: str, base: str = "parallel") -> list[MatchedGain]:
    """A kind of method against another one at every budget that both have, paired by task; of known answers alone."""
    named: dict[tuple[str, int], str] = {}
    for method in run.methods:
        if "forwards" in spec_values(method) and run.summary["methods"][method]["solved"] is not None:
            named[kind_of(method), spec_values(method)["forwards"]] = method
    out = []
    for forwards in sorted({budget for name, budget in named if name == kind and (base, budget) in named}):
        one, other = (named[name, forwards] for name in (base, kind))
        gain, between = solved_difference(run.of(one), run.of(other))
        before, after = (run.summary["methods"][method]["solved"] for method in (one, other))
        out.append(MatchedGain(forwards, before, after, gain, between))
    return out


def budgets_beside_filling(run: CanvasRun, kind: str) -> list[int]:
    """The budgets of a kind of method, rising; Refusal where none is also one of filling alone, on known answers."""
    if not matched_gains(run, kind):
        raise Refusal(f"this run has no {kind}(forwards=F) beside parallel(forwards=F) on tasks with answers: make one "
                      "with `specdec canvas --world sudoku` and both among its --methods")
    return sorted(spec_values(one)["forwards"] for one in run.methods
                  if kind_of(one) == kind and "forwards" in spec_values(one))


def correction_rows(run: CanvasRun, kind: str) -> dict[str, dict[str, int]]:
    """Budget, rising -> tokens replaced on all tasks, by what they were and became, and the net of corrections."""
    found: dict[int, Mapping[str, int]] = {spec_values(method)["forwards"]: entry["corrections"] for method, entry
                                           in run.summary["methods"].items()
                                           if kind_of(method) == kind and "forwards" in spec_values(method)}
    return {f"{forwards} forwards": {"wrong to right": told["to_right"], "right to wrong": told["to_wrong"],
                                     "wrong to wrong": told["still_wrong"], "net": told["to_right"] - told["to_wrong"]}
            for forwards, told in sorted(found.items())}


def net_sentence(rows: Mapping[str, Mapping[str, int]]) -> str:
    """How the net number of corrections changes with the forwards, and at which of them more is set right than spoiled.

    `rows` are those of `correction_rows`, in the order of their budgets.
    """
    nets = [row["net"] for row in rows.values()]
    gained = [name for name, row in rows.items() if row["net"] > 0]
    said = (f"more tokens are set right than spoiled at {', '.join(gained)}" if gained else
            "at no number of forwards are more tokens set right than spoiled")
    return f"With more forwards the net number of corrections {trend(nets)}, from {nets[0]} to {nets[-1]}: {said}"


def most_corrected(run: CanvasRun, method: str, among: Collection[str] | None = None) -> str:
    """The task on which a method set most tokens right, a solved one if there is any; of `among`, or of all tasks.

    The first of equals; Refusal where the run holds no such decode.
    """
    own = [one for one in run.of(method) if among is None or one.task in among]
    if not own:
        raise Refusal(f"this run holds no decode by {method} of the tasks asked for")
    return max(own, key=lambda one: (bool(one.solved and one.corrections.to_right), one.corrections.to_right)).task


def pays(run: CanvasRun, method: str) -> dict[str, float | str | None]:
    """What decides whether drafted rows pay: tokens per forward, the measured cost of its rows, and measured time."""
    entry, rows = run.summary["methods"][method], value_of(canvas_spec(method), "rows", 1)
    cost = run.summary["row_cost"].get(str(rows))
    return {"tokens per forward": entry["tokens_per_forward"], "rows per forward": entry["rows_per_forward"],
            "T(full batch) / T(1 row)": cost, "predicted speed": cost and entry["tokens_per_forward"] / cost,
            "measured speed": entry["times_as_fast"], "verdict": speed_verdict(entry["times_as_fast_ci"])}


def speed_verdict(interval: Interval) -> str:
    """The word that an interval of a speed ratio supports, where a run is uncertain by `UNCERTAIN` beside it."""
    known = interval or (1.0, 1.0)
    close = 1 < known[0] <= 1 + UNCERTAIN or 1 - UNCERTAIN <= known[1] < 1
    return "too close to 1 for this run" if close else verdict(interval)


def speed_sentence(run: CanvasRun, method: str) -> str:
    """The measured speed of a method against stepwise decoding in words, with the word of `speed_verdict`."""
    entry = run.summary["methods"][method]
    ratio, interval = entry["times_as_fast"], entry["times_as_fast_ci"]
    said = speed_verdict(interval)
    if interval is None or said == verdict(interval):
        return over(method, ratio, interval, "stepwise decoding")
    return f"{method}: {times_text(ratio, interval)} the speed of stepwise decoding, {said}"


def identity_sentence(run: CanvasRun) -> str:
    """How many canvases of lossless methods equal stepwise decoding's, and how many of the others do at one shape."""
    told = [entry for entry in run.summary["methods"].values() if entry["promised"]]
    same, promised = (sum(entry[name] for entry in told) for name in ("identical", "promised"))
    again = sum(entry["identical_at_one_shape"] for entry in told)
    rest = "" if same == promised else (f"; of the other {promised - same}, {again} are identical when every forward"
                                        " has the same number of rows, so that only rounding told them apart")
    return f"{same} of {promised} canvases are identical to stepwise decoding's{rest}"


def gain_sentence(kind: str, one: MatchedGain) -> str:
    """One budget in words, its direction taken from the interval."""
    between = "" if one.interval is None else f" ({one.interval[0]:+.3f} to {one.interval[1]:+.3f})"
    return (f"{one.forwards} forwards: {kind} solves {number(one.other)} against {number(one.base)}, a difference of "
            f"{one.difference:+.3f}{between}: {one.verdict}")


def quality_rows(run: CanvasRun) -> dict[str, dict[str, float | int | None]]:
    """Of a run on text, for each method: forwards, what the target says of its answers, and how they repeat.

    `nats per token` is the mean of the answers' negative log-likelihoods under the target, `distinct pairs` the number
    of different pairs of neighbouring tokens over that of all. Refusal for a run without them.
    """
    rows: dict[str, dict[str, float | int | None]] = {}
    for method, entry in run.summary["methods"].items():
        told = entry.get("quality") or {}
        if "target_nll" not in told:
            raise Refusal("this run holds no quality of text: make one with `specdec canvas --world text`")
        name = method if canvas_cards()[canvas_spec(method).name].lossless else f"{method} (lossy)"
        rows[name] = {"forwards": entry["forwards"], "times as fast": entry["times_as_fast"],
                      "nats per token": told["target_nll"], "distinct pairs": told.get("distinct_2")}
    return rows


def nats_sentence(run: CanvasRun) -> str:
    """The methods whose answers cost the target least and most, and whether the pairs of answers tell them apart."""
    nats = {method: entry["quality"]["target_nll"] for method, entry in run.summary["methods"].items()}
    best, worst = min(nats, key=nats.__getitem__), max(nats, key=nats.__getitem__)
    found = paired_quality(run, "target_nll", best, worst)
    apart = (f", a difference of {estimate_text(found[1] - found[0], found[2], signed=True)}: "
             f"{verdict(found[2], 'told apart', 'told apart', line=0.0)}" if found else "")
    return (f"Its answers cost the target {number(nats[best])} nats per token with {best} and {number(nats[worst])} "
            f"with {worst}{apart}")


class OrderChange(NamedTuple):
    """Mean of a quality over the tasks with the most confident position first and in a random order, paired by task."""

    confident: float
    random: float
    interval: Interval                             # of the random order's less the other

    def sentence(self, what: str) -> str:
        """Both means in words, the direction taken from the interval."""
        apart = estimate_text(self.random - self.confident, self.interval, signed=True)
        return (f"A random order against the most confident first: {number(self.random)} against "
                f"{number(self.confident)} {what}, a difference of {apart}: "
                f"{verdict(self.interval, 'more', 'fewer', line=0.0)}")


def order_change(run: CanvasRun, name: str) -> OrderChange | None:
    """What a random order of stepwise decoding changes in this quality; None where the run does not have both."""
    found = paired_quality(run, name, "stepwise", "stepwise(order='random')")
    return found and OrderChange(*found)


def paired_quality(run: CanvasRun, name: str, one: str, other: str) -> tuple[float, float, Interval] | None:
    """Means of a quality with two methods over the tasks of both, and the interval of the other's less the first's."""
    first, second = ({decode.task: decode.quality[name] for decode in run.of(method) if name in decode.quality}
                     for method in (one, other))
    base, own = ([(side[task], 1.0) for task in first if task in second] for side in (first, second))
    if not base:
        return None
    before, after = (sum(value for value, _ in side) / len(side) for side in (base, own))
    return before, after, change_interval(base, own)


def repeated_share(tokens: Sequence[int]) -> float | None:
    """The share of pairs of neighbouring tokens that stood earlier in the text already; None below two tokens."""
    distinct = distinct_ngrams(tokens, 2)
    return None if distinct is None else 1 - distinct


def examples(run: CanvasRun, task: str) -> dict[str, dict[str, str]]:
    """What every method of a run wrote for one task, as text."""
    return {method: {"answer": one.text} for method in run.methods for one in run.of(method, task)}
