"""A finished run as the report reads it: its summary and its decodes, and where outputs differ from plain decoding."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_lib.bench import summary as sums
from specdec_lib.bench.results import TABLES, Decode, check_finished, read_results, read_turns, select
from specdec_lib.bench.runners import WARM
from specdec_lib.cost import curves
from specdec_lib.files import refuse_special
from specdec_lib.specs import PartSpec, parse_part
from specdec_lib.types import Refusal

QUALITIES = {"target_nll": "target NLL (nats per token)", "ar_overlap": "overlap with ar",
             "reference_score": "reference score", "repeated_4grams": "repeated 4-grams"}


@dataclass(frozen=True)
class Report:
    """A finished run; `methods` excludes plain decoding."""

    summary: dict
    decodes: tuple[Decode, ...]

    @property
    def entries(self) -> dict[str, dict]:
        return self.summary["methods"]

    @property
    def methods(self) -> list[str]:
        return [name for name in self.entries if name != "ar"]

    @property
    def warnings(self) -> list[str]:
        """What the run warns of, a sentence each."""
        return list(self.summary.get("settings", {}).get("warnings") or ())

    @property
    def shown(self) -> list[str]:
        """Methods for a slider: at most twelve; plain decoding if there is no other."""
        return self.methods[:12] or ["ar"]

    @property
    def families(self) -> list[str]:
        return list(self.entries["ar"]["by_family"])

    @property
    def curve(self) -> curves.CostCurve | None:
        saved = self.summary["settings"]["cost_curve"]
        return None if saved is None else curves.from_dict(saved)

    def of_family(self, family: str | None) -> list[Decode]:
        """The decodes of one family of prompts; of all for None."""
        return [one for one in self.decodes if family in (None, one.family)]

    def column(self, key: str, names: Sequence[str] | None = None) -> list:
        """One measure of these methods; by default of all but plain decoding."""
        return [self.entries[name][key] for name in (self.methods if names is None else names)]

    def by_family(self, key: str) -> dict[str, list]:
        """One measure per method, in the order of the families."""
        return {name: [self.entries[name]["by_family"].get(family, {}).get(key) for family in self.families]
                for name in self.methods}

    @property
    def lossy(self) -> list[str]:
        return [name for name in self.methods if self.entries[name].get("lossless") is False]

    @property
    def fastest(self) -> str:
        """The fastest method that is not lossy, surely faster ones first; plain decoding if no speed-up is above 1."""
        return self.fastest_of([name for name in self.methods if name not in self.lossy])

    def fastest_of(self, names: Sequence[str]) -> str:
        """The fastest of these methods, likewise."""
        def speed(name: str) -> float:
            return self.entries[name]["speedup"] or 0.0

        best = max(names, key=lambda name: (surely_faster(self.entries[name]), speed(name)), default="ar")
        return best if speed(best) > 1 else "ar"


def with_families(report: Report) -> Report:
    """The same run with the measures of each family, which kept summaries may leave out to save room."""
    if all("by_family" in entry for entry in report.entries.values()):
        return report
    known = {name: entry.get("lossless") for name, entry in report.entries.items()}
    lossless = {name: value for name, value in known.items() if value is not None}
    found = sums.method_summaries(report.decodes, lossless, report.curve)
    entries = {name: {**entry, "by_family": found[name]["by_family"]} for name, entry in report.entries.items()}
    return replace(report, summary={**report.summary, "methods": entries})


def plain_part(name: str) -> PartSpec | None:
    """The method of an entry and its parameters; None for a warm stream, and where a part is replaced (`@`)."""
    return None if "@" in name or entry_spec(name) != name else parse_part(name)


def entry_spec(name: str) -> str:
    """The spec of an entry: its name, without what marks a warm stream."""
    for warm in WARM.values():
        name = name.removesuffix(f" ({warm})")
    return name


def surely_faster(entry: dict) -> bool:
    """Whether the whole interval of the speed-up lies above 1."""
    return bool(entry["speedup_ci"]) and entry["speedup_ci"][0] > 1


def load_report(folder: str | Path, rounds: bool = True) -> Report:
    """The report of a finished run; Refusal if the folder holds none.

    Without `rounds` it may lack them, as some kept runs do: its decodes then have no rows.
    """
    folder = Path(folder)
    whole = rounds or (folder / TABLES[0]).exists()
    refuse_special(folder / "summary.json")
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        check_finished(folder, summary, TABLES if whole else TABLES[1:])
        return Report(summary, tuple((read_results if whole else read_turns)(folder)))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, Refusal):
            raise
        why = (str(error) or type(error).__name__).splitlines()[0]       # of a damaged table the reason has several
        raise Refusal(f"{folder} holds no finished run ({why}): measure one with `specdec bench`") from None


def first_differences(report: Report) -> list[dict]:
    """First differences from plain decoding: prompt, position, both tokens, and plain decoding's margin there."""
    plain = list(select(report.decodes, method="ar"))
    out = []
    for name in [*report.methods, *report.summary["peers"]]:
        own = list(select(report.decodes, method=name))
        for question, found in sums.divergences(plain, own).items():
            if found is not None:
                turn, first = found
                said = (piece_text(select(side, question_id=question, turn=turn), first.position, token)
                        for side, token in zip((plain, own), first.tokens, strict=True))
                out.append({"method": name, "prompt": question, "turn": turn + 1, "token": first.position + 1,
                            "plain": next(said), "here": next(said), "margin (logits)": first.margin})
    return out


def piece_text(repeats: Iterable[Decode], place: int, token: int | None) -> str:
    """The quoted text of this token, in the first repeat that has it at this place; "(ended)" of none."""
    return "(ended)" if token is None else next(repr(one.pieces[place]) for one in repeats
                                                if one.outcome.tokens[place:place + 1] == (token,))
