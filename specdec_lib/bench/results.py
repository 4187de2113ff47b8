"""Results of decodes: runner, prompt, turn, rounds, seconds and tokens, as values and as parquet tables.

A row of `rounds.parquet` is a round of a method, a row of `decodes.parquet` is one turn, peers included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specdec_lib.collection import without_collection
from specdec_lib.files import refuse_special
from specdec_lib.measure import Cost, Row
from specdec_lib.types import Refusal

Q = [("question_id", pa.int64()), ("family", pa.string()), ("method", pa.string()), ("repeat", pa.int32()),
     ("turn", pa.int32())]
TABLES = ("rounds.parquet", "decodes.parquet")
SECONDS = ("when", "what", "target", "how")
ROUNDS = pa.schema(Q + [("round", pa.int32()), ("source", pa.string())]
                   + [(name, pa.int32()) for name in ("drafted", "accepted", "offered", "emitted", "depth", "width")]
                   + [(name, pa.float64()) for name in (*SECONDS, "nll")]
                   + [("tokens", pa.list_(pa.int64())), ("origins", pa.list_(pa.string())),
                      ("margins", pa.list_(pa.float64())), ("not_best", pa.int32())])
SHARED = [("forward", pa.int32())]                # of a batch: the number of the forward
COUNTED = (*SECONDS, "prefill", "seconds", "repeat", "turn", "round", "prompt_tokens", "forwards", "drafted",
           "accepted", "offered", "emitted", "depth", "width")             # from 0 on, and finite
NULLABLE = NEWER = ("score", "not_best")          # what a run may not know, and what older tables lack
SPAN = ("began", "ended")                         # of a batch, in decodes
AHEAD = [(name, pa.int32()) for name in ("ahead", "branches", "discarded", "kept")]   # of those that draft ahead
DECODES = pa.schema(Q + [("peer", pa.bool_()), ("prompt_tokens", pa.int32()), ("prefill", pa.float64()),
                         ("seconds", pa.float64()), ("bought", pa.int32()), ("forwards", pa.int32()),
                         ("tokens", pa.list_(pa.int64())), ("pieces", pa.list_(pa.string())),
                         ("text", pa.string()), ("score", pa.float64())])


@dataclass(frozen=True)
class Outcome:
    """What a runner generated from one prompt's ids; times in seconds."""

    tokens: tuple[int, ...]                        # up to and including the first end token
    prefill: float                                 # of a peer: a one-token generate on the same prompt
    seconds: float                                 # after prefill
    bought: int                                    # tokens generated in `seconds`: all, or all but a peer's first
    forwards: int                                  # of the target, after prefill
    rows: tuple[Row, ...] = ()                     # none for a peer
    span: tuple[float, float] | None = None        # in a batch, since its start: place taken, last token


@dataclass(frozen=True)
class Decode:
    """An outcome with its method, prompt, turn and repeat; the last two count from 0."""

    question_id: int | str
    family: str
    method: str
    repeat: int
    turn: int
    peer: bool
    prompt_tokens: int
    outcome: Outcome
    text: str = ""
    pieces: tuple[str, ...] = ()                   # the text of each token alone
    score: float | None = None                     # against the prompt's reference

    @property
    def cost(self) -> Cost:
        return Cost(self.outcome.bought, self.outcome.seconds)

    @property
    def cost_end_to_end(self) -> Cost:
        """With prefill, for all tokens."""
        return Cost(len(self.outcome.tokens), self.outcome.prefill + self.outcome.seconds)

    @property
    def place(self) -> dict:
        return {name: getattr(self, name) for name, _ in Q}


@dataclass(frozen=True)
class Tables:
    """The two tables of a run."""

    rounds: pa.Table
    decodes: pa.Table

    def write(self, folder: Path) -> None:
        """Seconds of rounds keep a precision of 1 in 4,000, finer than timing noise: runs are committed."""
        small(shortened(self.rounds), folder / "rounds.parquet")
        small(self.decodes, folder / "decodes.parquet")


def small(table: pa.Table, path: Path) -> None:
    """Writes a table at about half the library's default size, because kept runs are committed.

    Brotli's highest level saves little more and takes many times as long, for every prompt of a run.
    """
    reals = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    others = [name for name in table.column_names if name not in reals]
    columns: dict[str, Any] = {"use_byte_stream_split": reals, "use_dictionary": others}     # stubs know no lists
    pq.write_table(table, path, compression="brotli", compression_level=6, write_statistics=False, **columns)


def shortened(rounds: pa.Table) -> pa.Table:
    """The rounds with seconds rounded as `Tables.write` does; doing it again changes nothing."""
    for place, name in enumerate(rounds.column_names):
        if name in (*SECONDS, "wall"):
            column = rounds[name]                  # a round of a serial method has no wall time
            rounds = rounds.set_column(place, name, pa.array(coarse(column.to_numpy()), pa.float32(),
                                                             mask=column.is_null().to_numpy()))
    return rounds


def coarse(values: np.ndarray, bits: int = 12) -> np.ndarray:
    """Reals in single precision, rounded to this many binary digits; the rest are zeros, which compress well."""
    drop = 24 - bits
    whole = values.astype(np.float32).view(np.uint32)
    return ((whole + (1 << (drop - 1))) >> drop << drop).view(np.float32)


def tables(decodes: Sequence[Decode]) -> Tables:
    """Both tables of these decodes."""
    rounds = [{**d.place, "round": i, **row._asdict()} for d in decodes for i, row in enumerate(d.outcome.rows)]
    measured = [row for d in decodes for row in d.outcome.rows]
    more = [("wall", pa.float64())] * any(row.wall is not None for row in measured)
    more += AHEAD * any(row.ahead is not None for row in measured)
    more += SHARED * any(row.forward is not None for row in measured)
    schema = pa.schema([*ROUNDS, *map(pa.field, *zip(*more, strict=True))]) if more else ROUNDS
    turns = [{**d.place, "peer": d.peer, "prompt_tokens": d.prompt_tokens, "text": d.text, "pieces": d.pieces,
              "score": d.score,
              **{n: getattr(d.outcome, n) for n in ("tokens", "prefill", "seconds", "bought", "forwards")}}
             for d in decodes]
    spans = [d.outcome.span for d in decodes]
    if any(spans):
        turns = [{**turn, **dict(zip(SPAN, span or (), strict=False))} for turn, span in zip(turns, spans, strict=True)]
    whole = pa.schema([*DECODES, *(pa.field(name, pa.float64()) for name in SPAN if any(spans))])
    if all(isinstance(d.question_id, int) for d in decodes):
        return Tables(pa.Table.from_pylist(rounds, schema), pa.Table.from_pylist(turns, whole))
    named = pa.field("question_id", pa.string())   # one string among the ids makes all strings
    rounds, turns = ([{**r, "question_id": str(r["question_id"])} for r in rows] for rows in (rounds, turns))
    schemas = schema.set(0, named), whole.set(0, named)
    return Tables(*(pa.Table.from_pylist(*pair) for pair in zip((rounds, turns), schemas, strict=True)))


def check_finished(folder: Path, summary: Any, tables: Sequence[str] = TABLES) -> None:
    """Refuses the folder of a finished run whose summary is none, or of which one of `tables` is gone or cut short."""
    remedy = "copy the run again, or measure it again in another folder with `specdec bench --out FOLDER`"
    told = summary if isinstance(summary, dict) else {}
    parts = [told.get("methods"), *(told.get(name, {}) for name in ("settings", "peers", "target", "prompts"))]
    entries = [entry for part in (parts[0], parts[2]) if isinstance(part, dict) for entry in part.values()]
    whole = all(isinstance(part, dict) for part in (*parts, *entries))
    if not whole or not isinstance(parts[1].get("warnings", []), list):
        raise Refusal(f"{folder / 'summary.json'} is not the summary of a run: {remedy}")
    for name in tables:
        refuse_special(folder / name)
        try:
            pq.read_metadata(folder / name)
        except (OSError, pa.ArrowException) as error:
            why = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
            raise Refusal(f"the finished run in {folder} is incomplete, its {name} {why}: {remedy}") from None


@without_collection()
def read_results(folder: Path | str) -> list[Decode]:
    """The decodes written to this folder, in order; Refusal where its tables are not those of a run."""
    try:
        return decodes_in(Path(folder))
    except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise Refusal(f"the run in {folder} cannot be read, its tables are damaged ({type(error).__name__}): copy it"
                      " again, or measure it again in another folder") from None


def read_turns(folder: Path | str) -> list[Decode]:
    """The decodes of this folder without rounds, which some kept runs lack; Refusal for a damaged table."""
    try:
        return [decode(record, {}) for record in checked_table(Path(folder) / "decodes.parquet", DECODES).to_pylist()]
    except (OSError, KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise Refusal(f"the decodes of the run in {folder} cannot be read ({type(error).__name__}): copy it again, or "
                      "measure it again in another folder") from None


def decodes_in(folder: Path) -> list[Decode]:
    rounds: dict[tuple, list[Row]] = {}
    for place, row in placed_rows(checked_table(folder / "rounds.parquet", ROUNDS)):
        rounds.setdefault(place, []).append(row)
    turns = checked_table(folder / "decodes.parquet", DECODES).to_pylist()
    if len({tuple(record[n] for n, _ in Q) for record in turns}) < len(turns):
        raise ValueError("a turn stands twice")
    return [decode(record, rounds) for record in turns]


def placed_rows(table: pa.Table) -> Iterator[tuple[tuple, Row]]:
    """Each round with the place of its turn; read by columns, which is faster than record by record."""
    rows = map(Row._make, zip(*(values_of(table, name) for name in Row._fields), strict=True))
    return zip(zip(*(values_of(table, name) for name, _ in Q), strict=True), rows, strict=True)


def values_of(table: pa.Table, name: str) -> Iterable[Any]:
    """A column's values, lists as tuples; None throughout where an older table lacks it."""
    if name not in table.column_names:
        return repeat(None, table.num_rows)
    values = table.column(name).to_pylist()
    return map(tuple, values) if kind_of(table.schema.field(name).type).startswith("list") else values


def checked_table(path: Path, schema: pa.Schema) -> pa.Table:
    """The table in this file; TypeError for a column of another kind, and for a value that no run writes.

    Those are nulls, counts below 0 and seconds that are below 0 or not finite.
    """
    refuse_special(path)
    table = pq.read_table(path)
    for field in schema:
        if field.name in NEWER and field.name not in table.column_names:
            continue
        column = table.column(field.name)
        if kind_of(column.type) != kind_of(field.type) and not (field.name == "question_id"
                                                                and kind_of(column.type) == "text"):
            raise TypeError(f"{field.name} is of another kind")
        if column.null_count and field.name not in NULLABLE:
            raise TypeError(f"{field.name} lacks values")
        values = column.drop_null().to_numpy() if field.name in COUNTED else np.zeros(0)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise TypeError(f"{field.name} holds what cannot be counted or timed")
    return table


def kind_of(type: pa.DataType) -> str:
    """What a column holds, whatever its width."""
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return f"list of {kind_of(type.value_type)}"
    tests = {"whole": pa.types.is_integer, "real": pa.types.is_floating, "truth": pa.types.is_boolean,
             "text": lambda type: pa.types.is_string(type) or pa.types.is_large_string(type)}
    return next((kind for kind, test in tests.items() if test(type)), "other")


def decode(record: dict, rounds: dict[tuple, list[Row]]) -> Decode:
    place = {name: record[name] for name, _ in Q}
    span = None if record.get(SPAN[0]) is None else (record[SPAN[0]], record[SPAN[1]])
    outcome = Outcome(tuple(record["tokens"]), record["prefill"], record["seconds"], record["bought"],
                      record["forwards"], tuple(rounds.get(tuple(place.values()), ())), span)
    return Decode(**place, peer=record["peer"], prompt_tokens=record["prompt_tokens"], outcome=outcome,
                  text=record["text"], pieces=tuple(record["pieces"]), score=record["score"])


def prompts(decodes: Iterable[Decode]) -> dict[int | str, list[Decode]]:
    """Decodes by question_id, in order of appearance."""
    out: dict[int | str, list[Decode]] = {}
    for one in decodes:
        out.setdefault(one.question_id, []).append(one)
    return out


def select(decodes: Iterable[Decode], **where) -> Iterator[Decode]:
    """Those whose fields have these values."""
    return (d for d in decodes if all(getattr(d, name) == value for name, value in where.items()))

