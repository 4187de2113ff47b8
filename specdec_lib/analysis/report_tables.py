"""The tables of the report, computed from a finished run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from specdec_lib import measure
from specdec_lib.analysis.bench_report import QUALITIES, Report, surely_faster
from specdec_lib.analysis.report_text import (
    checkpoints_text,
    choice_text,
    draft_model_text,
    estimate_text,
    facts_text,
    interval_text,
    reason_text,
    simplicity,
    times_text,
)
from specdec_lib.bench import summary as sums
from specdec_lib.bench.results import Decode, select
from specdec_lib.types import Refusal

FEWEST_ROUNDS = 20                                 # below it an acceptance rate is not shown
SPREADS = {"between repeats": "spread_of_repeats", "within a decode": "spread_within_decode"}


def overview(report: Report) -> dict[str, dict]:
    """The table of methods: name -> column -> value."""
    return {name: {"speed-up": entry["speedup"], "95 % interval": interval_text(entry["speedup_ci"]),
                   "expected": entry["expected_speedup"], "with prefill": entry["speedup_end_to_end"],
                   "tokens per forward": entry["tokens_per_target_forward"], "tokens per second":
                   entry["tokens_per_second"], "acceptance rate": entry["acceptance_rate"], "width": entry["width"],
                   "same ids": f"{entry['identical_prompts']} of {entry['prompts']}"}
            for name, entry in report.entries.items()}


def advice(report: Report) -> list[dict]:
    """For each family and for all prompts: the fastest method, and the simplest that is not told apart from it."""
    return [fastest_for(report, family) for family in (*report.families, None)]


def fastest_for(report: Report, family: str | None) -> dict:
    """The fastest lossless method for a family (None: all prompts), the one to take, and why.

    Methods whose whole interval lies above plain decoding go before the others, as in `Report.fastest`. Without
    intervals, which need five prompts, no method is taken.
    """
    at = {name: entry if family is None else entry["by_family"][family] for name, entry in report.entries.items()
          if name not in report.lossy and (family is None or family in entry["by_family"])}
    ranked = sorted(at, key=lambda name: (surely_faster(at[name]), at[name]["speedup"] or 0.0), reverse=True)
    best, here = ranked[0], at[ranked[0]]
    take, why = taken(report.of_family(family), ranked, [name for name in ranked if surely_faster(at[name])])
    return {"text": family or "all prompts", "fastest here": best,
            "speed-up": times_text(here["speedup"], here["speedup_ci"]), "how it drafts": reason_text(best, here),
            "take": take, "why": why}


def taken(decodes: Sequence[Decode], ranked: Sequence[str], sure: Collection[str]) -> tuple[str, str]:
    """The simplest method that is not told apart from the first of `ranked`, with the reason.

    `sure` are the methods that are told apart from plain decoding: where the first is one of them, so is the taken one.
    """
    best = ranked[0]
    ratios = {name: sums.speed_ratio(decodes, name, best) for name in ranked}
    if len(ranked) < 2:
        return best, "the run has no other lossless method"
    if ratios[best][1] is None:
        return "–", "too few prompts to say: an interval needs five"
    close = [name for name in ranked if name == best or (span := ratios[name][1]) and span[0] <= 1]
    take = min((name for name in close if best not in sure or name in sure), key=simplicity)
    simpler = [name for name in ranked if simplicity(name) < simplicity(take)]
    return take, choice_text(take, best, ratios[take], simpler, [name for name in simpler if name in close])


def acceptance_by_depth(report: Report, name: str, fewest: int = FEWEST_ROUNDS) -> list[float]:
    """Acceptance at each depth given the path above, down to the last depth that `fewest` rounds reached.

    The first depth is always among them.
    """
    rows = [row for one in report.decodes if one.method == name for row in one.outcome.rows]
    rates = measure.conditional_acceptance(rows)
    reached = sum(sum(row.offered >= depth for row in rows) >= fewest for depth in range(1, len(rates) + 1))
    return rates[:max(1, reached)]


def quality_table(report: Report, names: Sequence[str] | None = None) -> dict[str, dict]:
    """The quality of lossy methods: each measure with its interval, and its difference from plain decoding.

    The differences are paired over prompts and recomputed from the decodes, so old runs have them too. By default
    `names` are the fastest lossless method and then the lossy ones. The lossless method differs from plain decoding as
    well, in rounded arithmetic and, above temperature 0, by its random numbers: its row shows how much is chance.
    """
    shown = quality_rows(report) if names is None else names
    return {name: {"speed-up": times_text(report.entries[name]["speedup"], report.entries[name]["speedup_ci"])}
            | _quality_row(report, name) for name in shown}


def quality_rows(report: Report) -> list[str]:
    """The fastest lossless method as a reference, then the lossy ones; empty if every method is lossless.

    Where no lossless method drafts, the reference is plain decoding.
    """
    found = [name for name in report.methods if report.entries[name]["lossless"] is False]
    strict = [name for name in report.methods if report.entries[name]["lossless"]]
    best = max(strict, key=lambda name: report.entries[name]["speedup"] or 0.0, default="ar")
    return [*([best] if found else []), *found]


def _quality_row(report: Report, name: str) -> dict[str, str]:
    entry, moved = report.entries[name], sums.quality_change(report.decodes, "ar", name)
    out = {}
    for gate, said in QUALITIES.items():
        out[said] = estimate_text(entry[gate], entry["quality_ci"][gate])
        out[f"{said}, minus plain decoding's"] = estimate_text(*moved[gate], signed=True)
    return out


def token_origins(report: Report, method: str = "", question: str = "") -> tuple[Decode, list[str]]:
    """One decode and the source of each of its tokens; by default the output with the most accepted tokens.

    Without a method it is the fastest lossless one, or the fastest lossy one where no lossless one is faster than
    plain decoding.
    """
    shown = method or (report.fastest if report.fastest != "ar" else report.fastest_of(report.lossy))
    own = [d for d in select(report.decodes, method=shown, repeat=0)
           if not question or str(d.question_id) == question]
    if not own:
        raise Refusal(f"the run has no output of {shown} for prompt {question or '(any)'}")
    one = max(own, key=lambda d: sum(row.accepted for row in d.outcome.rows))
    return one, [origin for row in one.outcome.rows for origin in row.origins]


def peer_table(report: Report) -> dict[str, dict]:
    """Peers, plain decoding and the fastest method, with the ratio of each to plain decoding."""
    names = [*report.summary["peers"], "ar", *({report.fastest} - {"ar"})]
    entries = report.summary["peers"] | report.entries
    return {name: {"tokens per second": entries[name]["tokens_per_second"],
                   "tokens per forward": entries[name]["tokens_per_target_forward"],
                   "speed over our plain decoding": times_text(entries[name]["speedup"], entries[name]["speedup_ci"]),
                   "same ids": f"{entries[name]['identical_prompts']} of {entries[name]['prompts']}"}
            for name in names}


def conversation_facts(settings: Mapping[str, Any]) -> dict[str, str]:
    """What all conversations of a run had in common, if it was set."""
    system, switches = settings.get("system"), settings.get("template_switches")
    told = [f"system turn {system!r}"] if system else []
    told += [f"template switches {', '.join(switches)}"] if switches else []
    return {"conversations": "; ".join(told)} if told else {}


def provenance_table(report: Report) -> list[dict]:
    """The provenance of the numbers, a line for each fact."""
    about, settings = report.summary, report.summary["settings"]
    known = f" ({about['prompts']['known_as']})" if about["prompts"].get("known_as") else ""

    def chosen(*keys: str) -> str:
        return facts_text({key: settings[key] for key in keys})

    rows = {"date": about["created"], "command": settings["command"],
            "commit": f"{settings['commit']}{' with changes' if settings['changed'] else ''}",
            "target": facts_text(about["target"]), "machine": facts_text(about["machine"]),
            "versions": facts_text(about["versions"]),
            "prompts": f"{about['prompts']['count']} of {about['prompts']['file']}{known}, SHA-256"
                       f" {about['prompts']['sha256'][:16]}…",
            "decoding": chosen("max_new_tokens", "repeats", "temperature",
                               *(name for name in ("top_k", "top_p") if name in settings), "seed"),
            **conversation_facts(settings),
            "draft model": draft_model_text(report), "checkpoints": checkpoints_text(settings.get("checkpoints")),
            "node budget": f"{settings['nodes']} nodes, the widest draft whose verification costs at most 1.25 plain"
                           " forwards",
            "spread of plain decoding": facts_text({words: f"{settings[key]:.0%}" for words, key in SPREADS.items()
                                                    if settings[key] is not None})}
    others = {"diffusion": "diffusion model", "eagle": "EAGLE head", "dflash": "DFlash drafter"}
    rows |= {words: settings[key] for key, words in others.items() if settings.get(key)}
    return [{"what": key, "value": value} for key, value in rows.items()]
