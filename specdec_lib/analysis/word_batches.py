"""Runs of `specdec bench --target g2p` at several batches side by side: speed, forwards and error rates.

A table is a small JSON file made from run folders, or the folders themselves: a run for each kind of spelling and each
batch. Greedy decoding and beam search of the same batch stand beside each method. All speeds are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from specdec_lib.analysis.bench_report import load_report
from specdec_lib.analysis.run_table import read_table, write_table
from specdec_lib.analysis.wording import how_many
from specdec_lib.bench.batch_summary import BatchMeasures, batch_measures, speedup
from specdec_lib.bench.results import Decode
from specdec_lib.bench.summary import identical_prompts
from specdec_lib.seq2seq.stored import VERIFIER
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "results" / "g2p"
TABLE, PLAIN = "batches.json", "ar"
CLOSE = 0.25                                       # gains have no intervals: a change of less is not told apart
MADE = "make runs with `specdec bench --target g2p --batch 16 --out FOLDER/b16` and give FOLDER"


class WordRow(NamedTuple):
    """One method in one run; `speedup` counts from the first forward, `end_to_end` with the reading of the source."""

    kind: str                                      # words or sentences
    batch: int
    method: str
    peer: bool
    identical: int                                 # of `prompts`, with the ids of greedy decoding in the same batch
    prompts: int
    forwards: int                                  # of the verifier, shared ones once
    tokens: int
    seconds: float                                 # of all sequences, end to end
    speedup: float | None                          # over greedy decoding in the same batch
    end_to_end: float | None
    drafting: float | None                         # share of the seconds
    phoneme_error_rate: float
    word_error_rate: float
    phoneme_error_ci: Sequence[float] | None       # low and high end, of 95 %


@dataclass(frozen=True)
class WordBatches:
    """The rows of all runs, and the runs' provenance."""

    rows: tuple[WordRow, ...]
    runs: tuple[Mapping[str, Any], ...]

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(row.kind for row in self.rows))

    @property
    def batches(self) -> list[int]:
        return sorted({row.batch for row in self.rows})

    def row(self, kind: str, batch: int, method: str) -> WordRow | None:
        """The row of this method, None where it was not measured."""
        return next((row for row in self.rows if (row.kind, row.batch, row.method) == (kind, batch, method)), None)

    def methods(self) -> list[str]:
        """Greedy decoding first, then in the runs' order."""
        return list(dict.fromkeys(row.method for row in self.rows))


def read_word_batches(place: Path | str = "shipped") -> WordBatches:
    """The table in this folder, or that of the runs in it; Refusal where there is neither."""
    folder = SHIPPED if str(place) == "shipped" else Path(place)
    found = read_table(folder / TABLE, table_of, word_batches, "words in batches", MADE)
    if not found.rows or any(found.row(row.kind, row.batch, PLAIN) is None for row in found.rows):
        raise Refusal(f"a run in {folder} lacks greedy decoding at one of its batches: {MADE}")
    return found


def word_batches(told: Mapping[str, Any]) -> WordBatches:
    return WordBatches(tuple(WordRow(**row) for row in told["rows"]), tuple(told["runs"]))


def keep_word_batches(place: Path | str, out: Path | str) -> Path:
    """Writes the table of the runs in the folder `place` into the folder `out`."""
    return write_table(table_of(Path(place)), Path(out) / TABLE)


def table_of(folder: Path) -> dict[str, Any]:
    """The runs in the folders of this one as plain data; Refusal for runs of another target or that differ."""
    reports = [(path.parent.name, load_report(path.parent)) for path in sorted(folder.glob("*/summary.json"))]
    if not reports:
        raise Refusal(f"{folder} holds no runs: {MADE}")
    runs, rows = [], []
    for name, report in reports:
        told = report.summary
        if told["target"]["name"] != VERIFIER:
            raise Refusal(f"the run {name} decodes with {told['target']['name']} and not with {VERIFIER}: {MADE}")
        runs.append(run_of(name, told))
        for kind in dict.fromkeys(one.family for one in report.decodes):
            rows += rows_of(kind, told, [one for one in report.decodes if one.family == kind])
    refuse_mixed(runs, rows)
    return {"runs": runs, "rows": [row._asdict() for row in sorted(rows, key=lambda row: (row.kind, row.batch))]}


def refuse_mixed(runs: Sequence[Mapping[str, Any]], rows: Sequence[WordRow]) -> None:
    """Raises Refusal where runs differ in dtype or threads, or two have the same kind, batch and method."""
    for name in ("dtype", "threads"):
        if len({run[name] for run in runs}) > 1:
            raise Refusal(f"these runs differ in {name}: give a folder of runs that do not")
    keys = [(row.kind, row.batch, row.method) for row in rows]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice:
        raise Refusal(f"two runs decode {twice[0]} at batch {twice[1]} with {twice[2]}: leave one out")


def run_of(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """Where a run's numbers come from."""
    settings = told["settings"]
    return {"run": name, "batch": settings.get("batch", 1), "created": told["created"],
            "dtype": told["target"]["dtype"], "threads": told["target"].get("threads"), "machine": told["machine"],
            "command": settings["command"],
            "commit": settings["commit"], "changed": settings["changed"], "prompts": told["prompts"]["count"],
            "sha256": told["prompts"]["sha256"], "repeats": settings["repeats"],
            "warnings": list(settings["warnings"])}


def rows_of(kind: str, told: Mapping[str, Any], decodes: Sequence[Decode]) -> list[WordRow]:
    """A row for each method and peer of a run, of one kind of spelling."""
    named = {name: [one for one in decodes if one.method == name]
             for name in dict.fromkeys(one.method for one in decodes)}
    base, rows = named[PLAIN], []
    for name, own in named.items():
        entry = {**told["methods"], **told["peers"]}[name]["by_family"][kind]
        same, found, plain = identical_prompts(base, own), batch_measures(own), batch_measures(base)
        interval = entry["error_rates_ci"]["phoneme_error_rate"]
        rows.append(WordRow(kind, told["settings"].get("batch", 1), name, own[0].peer, same["identical_prompts"],
                            same["prompts"], found.forwards, found.tokens, short(found.end_to_end.seconds),
                            short(speedup(plain, found)), short(speedup(plain.end_to_end, found.end_to_end)),
                            short(drafting(found)), short(entry["phoneme_error_rate"]),
                            short(entry["word_error_rate"]),
                            interval and [*map(short, interval)]))
    return rows


def drafting(found: BatchMeasures) -> float | None:
    return found.drafting / found.seconds if found.seconds else None


def short(value: float | None) -> Any:
    """Four digits, finer than the noise."""
    return None if value is None else float(f"{value:.4g}")


def speed_rows(table: WordBatches, kind: str) -> list[dict[str, Any]]:
    """By method and batch: forwards, milliseconds and speed-ups over greedy decoding in the same batch."""
    return [{"method": row.method, "batch": row.batch, "tokens per forward": round(row.tokens / row.forwards, 2),
             "ms per token, end to end": round(1000 * row.seconds / row.tokens, 3), "times greedy": row.speedup,
             "times greedy, end to end": row.end_to_end, "drafting": row.drafting,
             "phoneme errors": row.phoneme_error_rate, "word errors": row.word_error_rate,
             "same ids": f"{row.identical} of {row.prompts}"}
            for name in table.methods() for batch in table.batches if (row := table.row(kind, batch, name))]


def change_sentence(name: str, few: WordRow, many: WordRow) -> str:
    """Whether a gain over greedy decoding is another in the larger batch, by `CLOSE`."""
    one, other = few.end_to_end, many.end_to_end
    if not one or not other:
        return f"{few.kind}, {name}: no gain was measured in both batches"
    word = "not told apart from" if abs(other / one - 1) < CLOSE else "smaller than" if other < one else "larger than"
    return (f"{few.kind}, {name}: the gain at batch {many.batch} is {word} that at {few.batch}, "
            f"{other:.2f} against {one:.2f}")


def gains_sentence(table: WordBatches, kind: str) -> str:
    """The range of all gains over greedy decoding, end to end, and how many of them are told from 1 by `CLOSE`."""
    gains = [row.end_to_end for row in table.rows if row.kind == kind and row.method != PLAIN and row.end_to_end]
    if not gains:
        return f"{kind}: no gain was measured"
    apart = sum(abs(gain - 1) >= CLOSE for gain in gains)
    return (f"{kind}, measured without intervals: {min(gains):.2f} to {max(gains):.2f} times greedy decoding, "
            f"{apart or 'none'} of {len(gains)} told apart from 1")


def strict_speed_sentence(table: WordBatches) -> str:
    """The range of gains, end to end, of the methods with greedy decoding's ids; how many exceed 1 by `CLOSE`."""
    gains = [row.end_to_end for row in table.rows if row.method != PLAIN and not row.peer
             and row.identical == row.prompts and row.end_to_end]
    if not gains:
        return "No run timed a method that keeps greedy decoding's output."
    faster, batches = [gain - 1 >= CLOSE for gain in gains], " and ".join(map(str, table.batches))
    return (f"End to end, in batches of {batches}, it ran at {min(gains):.2f} to {max(gains):.2f} times greedy"
            f" decoding's speed; at least {CLOSE:.0%} faster: {how_many(faster)} settings.")
