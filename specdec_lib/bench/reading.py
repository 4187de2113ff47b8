"""Reading a finished run: the sentences and tables of the report, worked out from its summary and its decodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec_lib import cost
from specdec_lib.bench import summary as sums
from specdec_lib.bench.decodes import Decode, of, read
from specdec_lib.types import Refusal

QUALITIES = {"target_nll": "target NLL (nats per token)", "ar_overlap": "overlap with ar",
             "reference_score": "reference score", "repeated_4grams": "repeated 4-grams"}

@dataclass(frozen=True)
class Report:
    """A finished run; `methods` leaves plain decoding out."""

    summary: dict
    decodes: tuple[Decode, ...]

    @property
    def entries(self) -> dict[str, dict]:
        return self.summary["methods"]

    @property
    def methods(self) -> list[str]:
        return [name for name in self.entries if name != "ar"]

    @property
    def shown(self) -> list[str]:
        """Methods for a slider: at most twelve, and plain decoding where there is no other."""
        return self.methods[:12] or ["ar"]

    @property
    def families(self) -> list[str]:
        return list(self.entries["ar"]["by_family"])

    @property
    def curve(self) -> cost.CostCurve | None:
        saved = self.summary["settings"]["cost_curve"]
        return None if saved is None else cost.from_dict(saved)

    def column(self, key: str, names: Sequence[str] | None = None) -> list:
        """One measure of these methods, of all but plain decoding by default."""
        return [self.entries[name][key] for name in (self.methods if names is None else names)]

    def by_family(self, key: str) -> dict[str, list]:
        """One measure per method, in the order of the families."""
        return {name: [self.entries[name]["by_family"].get(family, {}).get(key) for family in self.families]
                for name in self.methods}

    @property
    def fastest(self) -> str:
        """The method of the highest speed, surely faster ones first; plain decoding where none is above 1."""
        best = max(self.methods, key=lambda name: (sure(self.entries[name]), self.entries[name]["speedup"] or 0.0),
                   default="ar")
        return best if (self.entries[best]["speedup"] or 0.0) > 1 else "ar"


def sure(entry: dict) -> bool:
    """Whether the whole interval lies above 1."""
    return bool(entry["speedup_ci"]) and entry["speedup_ci"][0] > 1


def load(folder: str | Path) -> Report:
    """The report of a finished run; Refusal where the folder holds none."""
    folder = Path(folder)
    try:
        return Report(json.loads((folder / "summary.json").read_text(encoding="utf-8")), tuple(read(folder)))
    except (OSError, ValueError, KeyError) as error:
        raise Refusal(f"{folder} holds no finished run ({error}): measure one with `specdec bench`") from None


def headline(report: Report) -> str:
    """What was measured, on what, and what came out, in one sentence."""
    best, entry, about = report.fastest, report.entries[report.fastest], report.summary
    where = f"{about['target']['name']} on {about['target']['device']} in {about['target']['dtype']}"
    said = f"On {about['prompts']['count']} prompts with {where}, "
    if best == "ar":
        return said + "no method was faster than plain decoding."
    said += f"{best} decoded {times(entry['speedup'], entry['speedup_ci'])} as fast as plain decoding"
    if sure(entry):
        return f"{said}."
    return said + (", and the interval does not rule out that it is no faster." if entry["speedup_ci"] else
                   ", shown without an interval: five prompts are needed for one.")


def times(value: float | None, interval: Sequence[float] | None = None) -> str:
    """`1.72 times (1.51 to 1.93)`."""
    if value is None:
        return "–"
    return f"{value:.2f} times" + (f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else "")


def overview(report: Report) -> dict[str, dict]:
    """The table of methods: name -> column -> value."""
    return {name: {"speed-up": entry["speedup"], "95 % interval": span(entry["speedup_ci"]),
                   "expected": entry["expected_speedup"], "with prefill": entry["speedup_end_to_end"],
                   "tokens per forward": entry["tokens_per_target_forward"], "tokens per second":
                   entry["tokens_per_second"], "acceptance rate": entry["acceptance_rate"], "width": entry["width"],
                   "same ids": f"{entry['identical_prompts']} of {entry['prompts']}"}
            for name, entry in report.entries.items()}


def span(interval: Sequence[float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def advice(report: Report) -> list[dict]:
    """For each family and for all prompts the method to take, and why, from the numbers of this run."""
    return [choice(report, family) for family in (*report.families, None)]


def choice(report: Report, family: str | None) -> dict:
    """The fastest method for a family (None: all prompts), how sure that is, and what it rests on."""
    at = {name: entry if family is None else entry["by_family"][family] for name, entry in report.entries.items()
          if family is None or family in entry["by_family"]}
    ranked = sorted(at, key=lambda name: at[name]["speedup"] or 0.0, reverse=True)
    best, here = ranked[0], at[ranked[0]]
    decodes = [d for d in report.decodes if family is None or d.family == family]
    return {"text": family or "all prompts", "take": best, "speed-up": times(here["speedup"], here["speedup_ci"]),
            "because": because(best, here), "how sure": certainty(decodes, ranked)}


def because(name: str, entry: dict) -> str:
    """What a choice rests on."""
    if name == "ar":
        return "no draft paid for its verification"
    kept = entry["tokens_per_target_forward"] - 1
    return (f"{kept / (kept + 1):.0%} of its tokens came from drafts, {entry['width']:.1f} tokens wide;"
            f" the drafter took {entry['time_share']['drafter']:.0%} of the time")


def certainty(decodes: Sequence[Decode], ranked: Sequence[str]) -> str:
    """The first against the second by the interval of their own ratio."""
    if len(ranked) < 2:
        return "nothing to compare with"
    ratio, interval = sums.versus(decodes, ranked[1], ranked[0])
    if interval is None:
        return f"a point: fewer than five prompts (second: {ranked[1]})"
    if interval[0] > 1:
        return f"faster than {ranked[1]}, the second: {times(ratio, interval)}"
    return f"not told apart from {ranked[1]}: {times(ratio, interval)}"


def gates(report: Report, names: Sequence[str] | None = None) -> dict[str, dict]:
    """What lossy methods cost in quality: each gate with its interval, and how far it lies from plain decoding's.

    The differences are paired over prompts and worked out anew from the decodes, so runs of any age have them. `names`
    are the lossy methods and, first, the fastest lossless one by default: in rounded arithmetic it parts from plain
    decoding as well, and above temperature 0 by its coins, so its row says how much of a difference is chance.
    """
    shown = lossy(report) if names is None else names
    return {name: {"speed-up": times(report.entries[name]["speedup"], report.entries[name]["speedup_ci"])}
            | _gates(report, name) for name in shown}


def lossy(report: Report) -> list[str]:
    """The lossy methods behind the fastest lossless one, their yardstick; empty where every method is lossless."""
    found = [name for name in report.methods if report.entries[name]["lossless"] is False]
    strict = [name for name in report.methods if report.entries[name]["lossless"]]
    best = max(strict, key=lambda name: report.entries[name]["speedup"] or 0.0, default=None)
    return [*([best] if best and found else []), *found]


def _gates(report: Report, name: str) -> dict[str, str]:
    entry, moved = report.entries[name], sums.changed(report.decodes, "ar", name)
    out = {}
    for gate, said in QUALITIES.items():
        out[said] = estimate(entry[gate], entry["quality_ci"][gate])
        out[f"{said}, less ar's"] = estimate(*moved[gate], signed=True)
    return out


def estimate(value: float | None, interval: Sequence[float] | None, signed: bool = False) -> str:
    """`0.412 (0.380 to 0.441)`; with a sign where it is a difference."""
    if value is None:
        return "–"
    form = "+.3f" if signed else ".3f"
    return f"{value:{form}}" + (f" ({interval[0]:{form}} to {interval[1]:{form}})" if interval else "")


def differences(report: Report) -> list[dict]:
    """First differences from plain decoding: prompt, place, both tokens, and how sure plain decoding was there."""
    plain = list(of(report.decodes, method="ar"))
    out = []
    for name in [*report.methods, *report.summary["peers"]]:
        own = list(of(report.decodes, method=name))
        for question, found in sums.divergences(plain, own).items():
            if found is not None:
                turn, first = found
                out.append({"method": name, "prompt": question, "turn": turn + 1, "token": first.position + 1,
                            "plain": piece(plain, question, turn, first.position),
                            "here": piece(own, question, turn, first.position), "margin (logits)": first.margin})
    return out


def equality(report: Report) -> str:
    """Whether the lossless methods kept the promise, as far as this run's arithmetic can tell."""
    about = report.summary
    if about["settings"]["temperature"]:
        return "The run sampled: methods may emit other ids from the same law, and equality of ids says nothing."
    lossless = [name for name in report.methods if report.entries[name]["lossless"]]
    found = [row for row in differences(report) if row["method"] in lossless]
    outputs = sum(report.entries[name]["prompts"] for name in lossless)
    if not found:
        return f"All {outputs} outputs of lossless methods equal plain decoding's to the last id."
    widest = max(row["margin (logits)"] or 0.0 for row in found)
    bound, dtype = (1e-3 if "32" in about["target"]["dtype"] or "64" in about["target"]["dtype"] else 0.5,
                    about["target"]["dtype"])
    verdict = f"at most {widest:.3g} logits between the two best tokens there, a near tie in {dtype}."
    if widest >= bound:
        verdict = f"one of them at a margin of {widest:.3g} logits, too wide for a tie in {dtype}: look into it."
    return f"{len(found)} of {outputs} outputs of lossless methods part from plain decoding, {verdict}"


def piece(decodes: Sequence[Decode], question: int | str, turn: int, place: int) -> str:
    one = next(of(decodes, question_id=question, turn=turn))
    return repr(one.pieces[place]) if place < len(one.pieces) else "(ended)"


def along(report: Report, method: str = "", question: str = "") -> tuple[Decode, list[str]]:
    """One decode, and who proposed each of its tokens; by default the output with the most drafted tokens."""
    own = [d for d in of(report.decodes, method=method or report.fastest, repeat=0)
           if not question or str(d.question_id) == question]
    if not own:
        raise Refusal(f"the run has no output of {method or report.fastest} for prompt {question or '(any)'}")
    one = max(own, key=lambda d: sum(row.accepted for row in d.outcome.rows))
    return one, [origin for row in one.outcome.rows for origin in row.origins]


def peers(report: Report) -> dict[str, dict]:
    """Peers beside plain decoding and the fastest method, with the ratio to plain decoding."""
    names = [*report.summary["peers"], "ar", *({report.fastest} - {"ar"})]
    entries = report.summary["peers"] | report.entries
    return {name: {"tokens per second": entries[name]["tokens_per_second"],
                   "tokens per forward": entries[name]["tokens_per_target_forward"],
                   "speed over our plain decoding": times(entries[name]["speedup"], entries[name]["speedup_ci"]),
                   "same ids": f"{entries[name]['identical_prompts']} of {entries[name]['prompts']}"}
            for name in names}


def against_generate(report: Report) -> str:
    """Our plain decoding and our fastest method against transformers' own `generate`, intervals of those ratios."""
    if "hf-generate" not in report.summary["peers"]:
        return "transformers' generate did not run beside this; add --peers hf-generate."
    plain = times(*sums.versus(report.decodes, "hf-generate", "ar"))
    best = times(*sums.versus(report.decodes, "hf-generate", report.fastest))
    return (f"Against transformers' plain generate in the same run, our plain decoding is {plain} as fast,"
            f" and {report.fastest} {best}.")


def provenance(report: Report) -> list[dict]:
    """Everything that says where the numbers come from, a line each."""
    about, settings = report.summary, report.summary["settings"]
    known = f" ({about['prompts']['known_as']})" if about["prompts"].get("known_as") else ""
    rows = {"date": about["created"], "command": settings["command"],
            "commit": f"{settings['commit']}{' with changes' if settings['changed'] else ''}",
            "target": words(about["target"]), "machine": words(about["machine"]), "versions": words(about["versions"]),
            "prompts": f"{about['prompts']['count']} of {about['prompts']['file']}{known}, SHA-256"
                       f" {about['prompts']['sha256'][:16]}…",
            "decoding": words({key: settings[key] for key in ("max_new_tokens", "repeats", "temperature", "seed")}),
            "draft model": draft_model(report), "checkpoints": trained(settings.get("checkpoints")),
            "node budget": f"{settings['nodes']} nodes, the widest draft whose verification costs at most 1.25 plain"
                           " forwards",
            "spread of plain decoding": words({key: settings[key] for key in ("spread_of_repeats",
                                                                              "spread_within_decode")})}
    if settings.get("diffusion"):
        rows["diffusion model"] = settings["diffusion"]
    return [{"what": key, "value": value} for key, value in rows.items()]


def draft_model(report: Report) -> str:
    """Who drafted where a method wanted a model."""
    if any(name.partition("(")[0].partition("@")[0] == "draft-model" for name in report.entries):
        return report.summary["settings"]["draft"] or "none given: the target's own first layers, untrained"
    return report.summary["settings"]["draft"] or "none: no method asked for one"


def trained(sums: dict[str, str] | None) -> str:
    """The checkpoints of a run, each by the beginning of its checksum."""
    return ", ".join(f"{name} (SHA-256 {sha256[:16]}…)" for name, sha256 in (sums or {}).items()) or "none"


def words(facts: dict) -> str:
    return ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
                     for key, value in facts.items() if value is not None)
