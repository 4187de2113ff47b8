"""The short table of a finished run: its fastest methods and peers, as texts for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.analysis.wording import number
from specdec_lib.bench.results import Decode, select

LINES = 12                                         # enough for the default methods and peers
BASE = "ar"


def speed_rows(report: Report, lines: int = LINES) -> list[dict[str, str]]:
    """The fastest first, plain decoding always among them; a peer says that it is one."""
    entries = {**report.entries, **report.summary["peers"]}
    ranked = sorted(entries, key=lambda name: entries[name].get("batch", entries[name])["speedup"] or 0.0, reverse=True)
    shown = ranked[:lines]
    if BASE not in shown:
        shown[-1] = BASE
    return [speed_row(name, entries[name], list(select(report.decodes, method=name)), name in report.summary["peers"])
            for name in shown]


def speed_row(name: str, entry: dict, decodes: Sequence[Decode], peer: bool) -> dict[str, str]:
    """One line: speed with its interval, tokens per forward, tokens/s, equal outputs, time to the first token.

    Speed and tokens/s are of all sequences of a batch together, without an interval.
    """
    whole = entry.get("batch", entry)              # of a batch, what all sequences generate; prompts share its forwards
    times = number(whole["speedup"])
    if whole is entry and entry["speedup_ci"] is not None:
        times += f" ({interval_text(entry['speedup_ci'])})"
    first = first_token_seconds(decodes)
    return {"method": f"{name} (peer)" if peer else name, "times ar (95 %)": times,
            "tokens per forward": number(entry["tokens_per_target_forward"]),
            "tokens/s": number(whole["tokens_per_second"], 1),
            "same ids": f"{entry['identical_prompts']} of {entry['prompts']}",
            "ms to first token": number(first and 1000 * first, 0)}


def first_token_seconds(decodes: Sequence[Decode]) -> float | None:
    """The median time to the first token."""
    times = [until_first_token(one) for one in decodes]
    return median(times) if times else None


def until_first_token(decode: Decode) -> float:
    """Prefill and first round; a peer's prefill ends with its first token, but beam search has none before its end."""
    one = decode.outcome
    rest = one.seconds if decode.peer and one.bought >= len(one.tokens) else sum(row.seconds for row in one.rows[:1])
    return one.prefill + rest


def left_out(report: Report, lines: int = LINES) -> str:
    """How many methods and peers the table has no line for, in words; empty if none."""
    count = len(report.entries) + len(report.summary["peers"]) - lines
    return f"{count} more in summary.json" if count > 0 else ""
