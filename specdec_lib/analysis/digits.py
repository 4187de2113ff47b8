"""A run of `specdec digits` as numbers, rows and sentences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from specdec_lib import measure
from specdec_lib.analysis.run_place import chip
from specdec_lib.analysis.wording import how_many, number
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "digits"
PUBLISHED_ALIGNMENT = (0.10, 0.34)                 # acceptance without and with alignment, MAR-L/B (arXiv 2411.11925)
CHANCE = 0.01                                      # of the permutation test, below which images are told apart
SMALL = 0.05                                       # a p below this is rare, and expected once in twenty tests


class DigitsRun(NamedTuple):
    """The summary of a run, and its folder."""

    folder: Path
    summary: Mapping[str, Any]

    @property
    def methods(self) -> Mapping[str, Mapping[str, Any]]:
        return self.summary["methods"]

    def plain(self, kind: str) -> Mapping[str, Any] | None:
        """The target alone with heads of this kind; None where the run has none."""
        return next((found for found in self.methods.values() if found["kind"] == kind and not found["speculates"]),
                    None)


def read_run(folder: Path | str = "shipped") -> DigitsRun:
    """The run in this folder, by default the shipped one; Refusal where there is none."""
    place = SHIPPED if str(folder) == "shipped" else Path(folder)
    try:
        summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
        summary["methods"].items()
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise Refusal(f"{place} holds no finished run: `specdec digits` makes one") from None
    return DigitsRun(place, summary)


def speed_rows(run: DigitsRun) -> list[dict]:
    """By method: forwards of a batch, what each draft forward may cost, milliseconds per image, and the speed-up."""
    rows = []
    for name, found in run.methods.items():
        plain = run.plain(found["kind"])
        base, mine = seconds_each(plain), seconds_each(found)
        rows.append({"method": name, "lossless": found["lossless"], "accepted": found["acceptance"],
                     "target forwards per batch": found["target_forwards"] / found["batches"],
                     "draft forwards per batch": found["draft_forwards"] / found["batches"],
                     "may cost each": break_even(plain, found), "ms per image": milliseconds(found),
                     "speed-up": base and mine and base / mine})
    return rows


def break_even(plain: Mapping[str, Any] | None, found: Mapping[str, Any]) -> float | None:
    """Target forwards that a draft forward saves, the most that it may cost; None without a draft or a plain run."""
    if plain is None or not found["draft_forwards"]:
        return None
    saved = plain["target_forwards"] / plain["batches"] - found["target_forwards"] / found["batches"]
    return saved * found["batches"] / found["draft_forwards"]


def seconds_each(found: Mapping[str, Any] | None) -> float | None:
    """Seconds per image; None for a method that is not there or was not timed."""
    return found["seconds"] / found["images"] if found and found["seconds"] is not None else None


def milliseconds(found: Mapping[str, Any]) -> float | None:
    """Milliseconds per image, where it was timed."""
    each = seconds_each(found)
    return each and 1000 * each


def quality_rows(run: DigitsRun) -> list[dict]:
    """By method: accuracy with a 95 % interval, Frechet distance, and the energy test against the target alone."""
    return [{"method": name, "lossless": found["lossless"], "accuracy": spanned(found, "accuracy"),
             "Frechet distance": found["frechet"], "energy distance": found["energy"],
             "p of the same distribution": found["p_value"]} for name, found in run.methods.items()]


def spanned(found: Mapping[str, Any], key: str) -> str:
    """A figure with its interval."""
    low, high = found[f"{key}_interval"]
    return f"{found[key]:.3f} ({low:.3f} to {high:.3f})"


def told_apart(found: Mapping[str, Any]) -> str:
    """What the permutation test says of a method against the target alone."""
    if found["p_value"] is None:
        return "no plain images of its kind to compare with"
    return "told apart from plain images" if found["p_value"] < CHANCE else "not told apart from plain images"


def quality_sentence(name: str, found: Mapping[str, Any]) -> str:
    """The permutation test of a method in words; of the target alone, that a small p is chance and is inherited."""
    what = ("lossless" if found["lossless"] else "lossy") if found["speculates"] else "one distribution by construction"
    p = found["p_value"]
    chance = "" if found["speculates"] or p is None or p >= SMALL else (
        f"; a p below {SMALL} is chance here, and methods that take this noise inherit it")
    return f"{name} ({what}): {told_apart(found)}, p = {number(p, 3)}{chance}"


def images_sentence(run: DigitsRun) -> str:
    """How many lossless and lossy methods of a run the permutation test tells apart from the target's own images."""
    tested = [found for found in run.methods.values() if found["speculates"] and found["p_value"] is not None]
    said = [f"{sum(found['p_value'] < CHANCE for found in some)} of {len(some)} {word}" for word, some in (
        ("lossless", [found for found in tested if found["lossless"]]),
        ("lossy", [found for found in tested if not found["lossless"]])) if some]
    if not said:
        return "No method of the run can be compared with images of the target alone."
    return f"Told apart from the target's own images are {' and '.join(said)} methods of the recorded run."


def acceptance_sentence(run: DigitsRun) -> str:
    """The least and the most accepted by the exact rule."""
    shares = [found["acceptance"] for found in run.methods.values() if found["speculates"] and found["lossless"]]
    if not shares:
        return "No lossless method was run."
    ends = dict.fromkeys(f"{share:.0%}" for share in (min(shares), max(shares)))
    return f"The exact rule accepts {' to '.join(ends)} of the drafted patches that it tests."


def speed_sentence(run: DigitsRun) -> str:
    """The speeds of the timed lossless methods over the target alone, and how many are surely faster."""
    pairs = [([measure.Cost(1, each) for each in plain["seconds_by_batch"]],
              [measure.Cost(1, each) for each in found["seconds_by_batch"]])
             for found in run.methods.values() if found["speculates"] and found["lossless"] and found["seconds"]
             and (plain := run.plain(found["kind"])) and plain["seconds"]]
    speeds = [speed for pair in pairs if (speed := measure.speedup(*pair)) is not None]
    if not speeds:
        return "No lossless method was timed beside the target alone."
    spans = [measure.speedup_interval(base, own) for base, own in pairs]
    return (f"On {chip(run.summary['provenance'])} lossless methods ran at {min(speeds):.2f} to "
            f"{max(speeds):.2f} times the speed of the target alone; surely faster: "
            f"{how_many(span and span[0] > 1 for span in spans)}.")


def alignment(run: DigitsRun) -> dict[str, float | None]:
    """Acceptance of the exact rule without and with the draft's noise, its factor, and the published one."""
    with_noise, without = (run.methods.get(name, {}).get("acceptance") for name in
                           ("diffusion", "diffusion(aligned=False)"))
    apart, together = PUBLISHED_ALIGNMENT
    return {"without": without, "with": with_noise, "factor": with_noise / without if with_noise and without else None,
            "published factor": together / apart}


def digits_table(summary: Mapping[str, Any]) -> str:
    """The methods of a run as lines of text."""
    words = ("method", "lossless", "accepted", "target forwards", "ms per image", "accuracy", "p")
    rows = [words, *((name, "yes" if found["lossless"] else "no", number(found["acceptance"]),
                      str(found["target_forwards"]), number(milliseconds(found)),
                      number(found["accuracy"]), number(found["p_value"], 3))
                     for name, found in summary["methods"].items())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(words))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                     for row in rows)
