"""Runs of `specdec bench` with --batch side by side: how the gain changes with the batch, and predictions.

A table is a small JSON file made from run folders, or the folders themselves. Every run keeps its own provenance, and
runs of different batches stand beside each other: nothing is averaged over them. Measured and predicted numbers have
columns of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

from specdec_lib.analysis.bench_report import load_report
from specdec_lib.analysis.run_place import chip
from specdec_lib.analysis.run_table import read_table, write_table
from specdec_lib.analysis.wording import number, trend
from specdec_lib.bench.batch_summary import batch_measures, speedup
from specdec_lib.bench.results import Decode
from specdec_lib.bench.summary import identical_prompts, rounded
from specdec_lib.cost.batches import BatchCurve, batch_curve_of, batch_speedup, load_batch_curve, stream_speedup
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "results" / "batches"
TABLE = "batches.json"
PLAIN = "ar"
SAME = 0.02                                        # share by which rows of one size differ in a table
MADE = "make runs with `specdec bench --batch 4 --out FOLDER/b4` and give FOLDER"


class BatchRow(NamedTuple):
    """One method in one run."""

    dtype: str
    batch: int
    method: str
    prompts: int
    identical: int                                 # prompts with the ids of `ar` in the same batch
    as_single: int | None                          # prompts with the method's own ids at batch 1; None: not run there
    speedup: float | None                          # over `ar` in the same batch, of all sequences, measured
    measures: Mapping[str, Any]                    # of `bench.batch_summary`, all repeats together
    of_repeats: Sequence[float] = ()               # `speedup` of each repeat

    @property
    def span(self) -> tuple[float, float] | None:
        """The lowest and the highest speed-up of its repeats; None where it was run once."""
        return (min(self.of_repeats), max(self.of_repeats)) if len(self.of_repeats) > 1 else None


@dataclass(frozen=True)
class BatchTable:
    """The rows of all runs, the runs' provenance, and the cost curve of batches by dtype where it was measured."""

    rows: tuple[BatchRow, ...]
    runs: tuple[Mapping[str, Any], ...]
    curves: Mapping[str, BatchCurve]

    @property
    def dtypes(self) -> list[str]:
        return list(dict.fromkeys(row.dtype for row in self.rows))

    def of(self, dtype: str, method: str | None = None) -> list[BatchRow]:
        """The rows of a dtype, or of a method in it, by rising batch."""
        return sorted((row for row in self.rows if row.dtype == dtype and method in (None, row.method)),
                      key=lambda row: row.batch)

    def methods(self, dtype: str) -> list[str]:
        """The speculating methods, in the runs' order."""
        return [name for name in dict.fromkeys(row.method for row in self.of(dtype)) if name != PLAIN]


def read_batches(place: Path | str = "shipped") -> BatchTable:
    """The table in this folder, or that of the runs in it; Refusal where there is neither."""
    folder = SHIPPED if str(place) == "shipped" else Path(place)
    found = read_table(folder / TABLE, table_of, batch_table, "batches", MADE)
    if not any(row.method != PLAIN for row in found.rows):
        raise Refusal(f"the runs in {folder} decode plainly alone, so nothing in them has a gain: {MADE}")
    return found


def batch_table(told: Mapping[str, Any]) -> BatchTable:
    return BatchTable(tuple(BatchRow(**row) for row in told["rows"]), tuple(told["runs"]),
                      {name: batch_curve_of(curve) for name, curve in told["curves"].items()})


def keep_table(place: Path | str, out: Path | str) -> Path:
    """Writes the table of the runs in the folder `place` into the folder `out`."""
    return write_table(table_of(Path(place)), Path(out) / TABLE)


def table_of(folder: Path) -> dict[str, Any]:
    """The runs in the folders of this one, and its `cost*.json`, as plain data. Refusal for runs that differ."""
    reports = [(path.parent.name, load_report(path.parent)) for path in sorted(folder.glob("*/summary.json"))]
    if not reports:
        raise Refusal(f"{folder} holds no runs: {MADE}")
    runs = [run_of(name, report.summary) for name, report in reports]
    refuse_others(runs)
    decodes = [[one for one in report.decodes if one.turn == 0] for _, report in reports]
    single = {run["dtype"]: own for run, own in zip(runs, decodes, strict=True) if run["batch"] == 1}
    rows = [row._asdict() for run, own in zip(runs, decodes, strict=True)
            for row in rows_of(run, own, single.get(run["dtype"]))]
    curves = [load_batch_curve(path) for path in sorted(folder.glob("cost*.json"))]
    return rounded({"runs": runs, "rows": rows, "curves": {curve.dtype: curve.as_dict() for curve in curves}})


def run_of(name: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is: its batch and dtype, and where its numbers come from."""
    settings, target = summary["settings"], summary["target"]
    return {"run": name, "dtype": target["dtype"], "batch": settings.get("batch", 1), "target": target["name"],
            "threads": target.get("threads"), "created": summary["created"], "machine": summary["machine"],
            "device": target.get("device"),
            "command": settings["command"], "commit": settings["commit"], "changed": settings["changed"],
            "max_new_tokens": settings["max_new_tokens"], "temperature": settings["temperature"],
            "repeats": settings["repeats"], "sha256": summary["prompts"]["sha256"],
            "prompts": summary["prompts"]["count"], "warnings": list(settings["warnings"])}


def chip_of(run: Mapping[str, Any]) -> str:
    """The chip that a run of a table decoded on; its machine's GPU, if any, where an older table names no device."""
    return chip({"machine": run["machine"], "target": {"device": run.get("device")}})


def refuse_others(runs: Sequence[Mapping[str, Any]]) -> None:
    """Raises Refusal where runs of a table differ in more than batch and dtype, or two are alike in both."""
    for name in ("target", "threads", "max_new_tokens", "temperature", "repeats", "sha256", "prompts"):
        found = {run[name] for run in runs}
        if len(found) > 1:
            raise Refusal(f"these runs differ in {name} and not in batch and dtype alone: {sorted(map(str, found))}")
    kinds = [(run["dtype"], run["batch"]) for run in runs]
    twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
    if twice:
        raise Refusal(f"two runs have the dtype {twice[0]} and the batch {twice[1]}: leave one out")


def rows_of(run: Mapping[str, Any], decodes: Sequence[Decode], single: Sequence[Decode] | None) -> list[BatchRow]:
    """A row for each method of a run; `single` are the decodes of the run at batch 1, if there is one."""
    by_method = {name: [one for one in decodes if one.method == name]
                 for name in dict.fromkeys(one.method for one in decodes if not one.peer)}
    plain = batch_measures(by_method[PLAIN])
    alone = {key_of(one): one.outcome.tokens for one in single or ()}
    methods_alone, rows = {method for method, *_ in alone}, []
    for name, own in by_method.items():
        found, same = batch_measures(own), identical_prompts(by_method[PLAIN], own)
        parted = {one.question_id for one in own if alone.get(key_of(one)) != one.outcome.tokens}
        as_single = same["prompts"] - len(parted) if name in methods_alone else None
        rows.append(BatchRow(run["dtype"], run["batch"], name, same["prompts"], same["identical_prompts"], as_single,
                             speedup(plain, found), found.as_dict(), speedups_of_repeats(by_method[PLAIN], own)))
    return rows


def speedups_of_repeats(plain: Sequence[Decode], own: Sequence[Decode]) -> list[float]:
    """The speed-up of each repeat over plain decoding in the same repeat."""
    repeats = dict.fromkeys(one.repeat for one in own)
    found = [speedup(*(batch_measures([one for one in side if one.repeat == repeat]) for side in (plain, own)))
             for repeat in repeats]
    return [value for value in found if value is not None]


def key_of(one: Decode) -> tuple:
    return one.method, one.question_id, one.repeat


def predicted(table: BatchTable, row: BatchRow) -> float | None:
    """The speed-up over `ar` in a full batch that batch 1 and the cost curve predict; None without either.

    Tokens, rows and drafting seconds of a round are the method's own at batch 1. Every sequence is charged its own
    draft, as if drafts came one after another: more than drafters take that share their forwards.
    """
    given = round_at_one(table, row)
    return given and batch_speedup(given.tokens, row.batch, given.rows, given.curve, given.draft)


def predicted_as_filled(table: BatchTable, row: BatchRow) -> float | None:
    """The same with as many sequences per forward as this run and its `ar` had: what the measured one is held against.

    Sequences are counted, not timed, so the prediction still knows no measured second above batch 1.
    """
    given = round_at_one(table, row)
    plain = next((one.measures for one in table.of(row.dtype, PLAIN) if one.batch == row.batch), None)
    if given is None or plain is None:
        return None
    return stream_speedup(given.tokens, given.rows, row.measures["sequences_per_forward"],
                          plain["sequences_per_forward"], given.curve, given.draft)


class RoundAtOne(NamedTuple):
    """A method's mean round at batch 1, and the curve that prices it in batches."""

    tokens: float
    rows: float
    draft: float                                   # seconds
    curve: BatchCurve


def round_at_one(table: BatchTable, row: BatchRow) -> RoundAtOne | None:
    """The round of this row's method at batch 1; None where it or the curve was not measured, or drafts differ in size.

    Drafting is timed in plain forwards of the run, since the run may have been slower than its curve.
    """
    curve = table.curves.get(row.dtype)
    base, plain = (next((one.measures for one in table.of(row.dtype, method) if one.batch == 1), None)
                   for method in (row.method, PLAIN))
    if curve is None or base is None or not isclose(base["rows_per_sequence"], row.measures["rows_per_sequence"],
                                                    rel_tol=SAME):
        return None
    slower = 1.0 if plain is None else plain["seconds"] / plain["forwards"] / curve(1, 1)
    draft = base["drafting_share"] * base["seconds"] / base["forwards"] / slower
    return RoundAtOne(base["tokens_per_forward_and_sequence"], base["rows_per_sequence"], draft, curve)


def gain_rows(table: BatchTable, dtype: str) -> list[dict[str, Any]]:
    """By method and batch: what was measured, and in columns of its own what was predicted."""
    return [{"method": row.method, "batch": row.batch, "tokens/s, all": row.measures["tokens_per_second"],
             "measured speed-up": row.speedup, "lowest to highest repeat": span_text(row),
             "predicted, batch full": None if name == PLAIN else predicted(table, row),
             "predicted, as full as measured": None if name == PLAIN else predicted_as_filled(table, row),
             "tokens per forward and sequence": row.measures["tokens_per_forward_and_sequence"],
             "sequences per forward": row.measures["sequences_per_forward"],
             "drafting": row.measures["drafting_share"]}
            for name in (PLAIN, *table.methods(dtype)) for row in table.of(dtype, name)]


def span_text(row: BatchRow) -> str | None:
    """`1.21 to 1.34`; None where the run had one repeat."""
    return row.span and f"{row.span[0]:.2f} to {row.span[1]:.2f}"


def gain_sentences(table: BatchTable, dtype: str) -> list[tuple[str, bool | None]]:
    """For each method, that its measured gain is smaller at the largest batch than at the smallest; whether it is.

    Unknown where repeats were measured and those of the two batches overlap.
    """
    out = []
    for name in table.methods(dtype):
        rows = [row for row in table.of(dtype, name) if row.speedup is not None]
        if len(rows) < 2:
            out.append((f"{name} was measured at one batch alone", None))
            continue
        first, last = rows[0], rows[-1]
        at, than_at = ((number(row.speedup), f" ({span_text(row)})" if row.span else "") for row in (last, first))
        known = not (first.span and last.span) or last.span[1] < first.span[0] or first.span[1] < last.span[0]
        out.append((f"{name}: the speed-up is smaller at batch {last.batch} than at batch {first.batch}, "
                    f"{''.join(at)} against {''.join(than_at)}; from batch to batch it "
                    f"{trend([row.speedup for row in rows])}", float(at[0]) < float(than_at[0]) if known else None))
    return out


def prediction_sentences(table: BatchTable, dtype: str, near: float = 0.1) -> list[tuple[str, bool | None]]:
    """For each method, that its predicted speed-ups beyond batch 1 lie this `near` the measured ones; whether they do.

    Unknown where those that do not lie between the lowest and the highest repeat: the repeats differ by as much.
    """
    out = []
    for name in table.methods(dtype):
        pairs = [(guess / row.speedup - 1, guess, row) for row in table.of(dtype, name) if row.batch > 1
                 and row.speedup and (guess := predicted_as_filled(table, row)) is not None]
        if not pairs:
            out.append((f"{name} has no prediction: batch 1 or a curve lacks, or its drafts differ in size", None))
            continue
        off = [pair for pair in pairs if abs(pair[0]) > near]
        wrong = [pair for pair in off if not (pair[2].span and pair[2].span[0] <= pair[1] <= pair[2].span[1])]
        miss, _, row = max(wrong or off or pairs, key=lambda pair: abs(pair[0]))
        within = f", within the range of the repeats, {span_text(row)}" if off and not wrong else ""
        out.append((f"{name}: the prediction lies within {near:.0%} of what was measured; at batch {row.batch} it is "
                    f"{abs(miss):.0%} {'above' if miss > 0 else 'below'}".replace("%", " %") + within,
                    None if off and not wrong else not wrong))
    return out


def same_ids(table: BatchTable, dtype: str) -> tuple[int, int]:
    """Answers in batches with the ids of the same method at batch 1, and how many were compared."""
    rows = [row for row in table.of(dtype) if row.batch > 1 and row.as_single is not None]
    return sum(row.as_single or 0 for row in rows), sum(row.prompts for row in rows)


def provenance_rows(table: BatchTable) -> list[dict[str, Any]]:
    """Where each run's numbers come from."""
    return [{"run": run["run"], "dtype": run["dtype"], "batch": run["batch"], "prompts": run["prompts"],
             "tokens each": run["max_new_tokens"],
             "machine": chip_of(run), "threads": run["threads"],
             "date": str(run["created"])[:10], "warnings": len(run["warnings"])}
            for run in table.runs]


def gain_lines(table: BatchTable, dtype: str, method: str) -> tuple[list[int], dict[str, list[float | None]]]:
    """The batches of a method's runs, and its measured and both predicted speed-ups at each."""
    rows = table.of(dtype, method)
    return [row.batch for row in rows], {
        "measured": [row.speedup for row in rows], "predicted, batch full": [predicted(table, row) for row in rows],
        "predicted, as full as measured": [predicted_as_filled(table, row) for row in rows]}


def repeat_spans(table: BatchTable, dtype: str, method: str) -> list[tuple[float, float] | None]:
    """The lowest and the highest repeat of a method at each of its batches; None where it was run once."""
    return [row.span for row in table.of(dtype, method)]
