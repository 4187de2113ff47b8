"""What a batch did as a whole: tokens a second over all sequences, forwards, and how full the batch was.

The other measures of a summary are those of one sequence: its seconds hold what it waited for the others. A run of one
sequence at a time has the same measures, so that runs of any batch stand in one table. Pure: reads no file, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from specdec_lib.bench.results import Decode
from specdec_lib.bench.summary import rounded
from specdec_lib.measure import share


class BatchMeasures(NamedTuple):
    """One method's stream of prompts, all repeats together; seconds are wall-clock."""

    tokens: int                                    # of all sequences
    forwards: int                                  # of the target, each of up to `batch` sequences; without prefill
    sequence_rounds: int                           # one for every sequence in every forward
    rows: int                                      # fed to these forwards; 0 = unknown, of a peer
    seconds: float                                 # after prefill
    prefill: float                                 # of all prompts, each alone
    drafting: float                                # of all sequences, one after the other; part of `seconds`
    last_tokens: tuple[float, ...]                 # per sequence, from its place taken to its last token

    @property
    def end_to_end(self) -> BatchMeasures:
        """The same with prefill among the seconds."""
        return self._replace(seconds=self.seconds + self.prefill, prefill=0.0)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: rates, and what they are made from."""
        return {"tokens_per_second": share(self.tokens, self.seconds),
                "tokens_per_second_end_to_end": share(self.tokens, self.seconds + self.prefill),
                "tokens_per_forward": share(self.tokens, self.forwards),
                "tokens_per_forward_and_sequence": share(self.tokens, self.sequence_rounds),
                "sequences_per_forward": share(self.sequence_rounds, self.forwards),
                "rows_per_sequence": share(self.rows, self.sequence_rounds) or None,
                "drafting_share": share(self.drafting, self.seconds),
                "seconds_to_last_token": {"median": median(self.last_tokens), "longest": max(self.last_tokens)},
                "tokens": self.tokens, "forwards": self.forwards, "seconds": self.seconds, "prefill": self.prefill}


def batch_measures(decodes: Sequence[Decode]) -> BatchMeasures:
    """The measures of one method's decodes, in a batch or one at a time."""
    streams = [measures_of([one for one in decodes if one.repeat == repeat])
               for repeat in dict.fromkeys(one.repeat for one in decodes)]
    *sums, _ = zip(*streams, strict=True)
    return BatchMeasures._make((*map(sum, sums), tuple(time for one in streams for time in one.last_tokens)))


def measures_of(stream: Sequence[Decode]) -> BatchMeasures:
    """The measures of one stream. In a batch its wall time is that of its last token; a forward counts once."""
    outcomes = [one.outcome for one in stream]
    rows = [row for outcome in outcomes for row in outcome.rows]
    prefill, tokens = sum(one.prefill for one in outcomes), sum(len(one.tokens) for one in outcomes)
    spans = [one.span for one in outcomes if one.span is not None]
    if not spans:
        last = tuple(one.prefill + one.seconds for one in outcomes)
        forwards = sum(outcome.forwards for outcome in outcomes)     # one for every round; peers have no rounds
        return BatchMeasures(tokens, forwards, forwards, sum(row.width for row in rows),
                             sum(one.seconds for one in outcomes), prefill, sum(row.what for row in rows), last)
    if not rows:                                   # of a peer, whose sequences start together and share forwards
        groups = {span: max(one.outcome.forwards for one in stream if one.outcome.span == span) for span in set(spans)}
        own = sum(outcome.forwards for outcome in outcomes)
        return BatchMeasures(tokens, sum(groups.values()), own, 0, max(ended for _, ended in spans) - prefill, prefill,
                             0.0, tuple(ended - began for began, ended in spans))
    shared = {row.forward: row.what for row in rows}         # of all sequences, and written with each of them
    return BatchMeasures(tokens, len(shared), len(rows), sum(row.width for row in rows),
                         max(ended for _, ended in spans) - prefill, prefill, sum(shared.values()),
                         tuple(ended - began for began, ended in spans))


def with_batches(told: dict[str, Any], decodes: Sequence[Decode]) -> dict[str, Any]:
    """The summary with each method's measures under `batch`, its speed-up over `ar` in the same batch among them.

    What the single curve predicts is dropped, since it knows no batches.
    """
    everyone = {**told["methods"], **told["peers"]}
    found = {name: batch_measures([one for one in decodes if one.method == name]) for name in everyone}
    for name, entry in everyone.items():
        for one in (entry, *entry["by_family"].values()) if name in told["methods"] else ():
            one["expected_speedup"] = None
        entry["batch"] = rounded({"size": told["settings"]["batch"], "speedup": speedup(found["ar"], found[name]),
                                  "speedup_end_to_end": speedup(found["ar"].end_to_end, found[name].end_to_end),
                                  **found[name].as_dict()})
    return told


def speedup(base: BatchMeasures, own: BatchMeasures) -> float | None:
    """Tokens a second of all sequences over those of `base`, after prefill."""
    one, two = share(base.tokens, base.seconds), share(own.tokens, own.seconds)
    return two / one if one and two else None
