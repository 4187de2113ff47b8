"""Fits of one drafter by different recipes, on the same answers: read from their cards, kept as one file, compared.

A fit is a folder that `specdec train NAME --watch FILE --out FOLDER` wrote. Fits are compared at the same amount of
text, which does not depend on what else the machine did: a fit by another recipe with the law through the ends of the
base's fits, longer and shorter. How fast a recipe reads text is told beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specdec_lib.analysis.learning_curves import PowerLaw, amount, power_laws
from specdec_lib.by_name import ByName
from specdec_lib.files import write_text
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "results" / "recipes.json"
TAU, BY_DEPTH, START = "tokens_per_target_forward", "conditional_acceptance", "begun from"
KEPT = {"slot": "loss", "depth": "depth weights", "rows": "draft vocabulary", "trained_depth": "steps unrolled",
        "rate": "learning rate", "seed": "seed"}   # settings of a card that recipes differ in, and their words here
MADE = ("commit", "date", "machine", "threads", "dtype", "torch", "tokens_of_data")
HEAD = "tokens of the head gone on from"          # in what the fits have in common, where one is known
SAME = ([], ["seed"])                              # differences that are none of the recipe


@dataclass(frozen=True)
class RecipeFit:
    """One fit: its recipe, the text it read, and its tokens per target forward, teacher-forced."""

    name: str
    recipe: Mapping[str, Any]
    tokens: int                                    # seen in this fit
    speed: float                                   # tokens a second in training that a quarter of its steps exceed
    started: float | None                          # watched answers before the first step; None: not measured
    watched: float                                 # answers to other people's prompts, never trained on
    by_depth: tuple[float, ...]                    # P(accepted at depth k | accepted before), watched
    command: str

    def differing(self, base: RecipeFit) -> list[str]:
        """The words of the recipe that have another value than in the base."""
        return [word for word in self.recipe if self.recipe[word] != base.recipe.get(word)]

    def changed(self, base: RecipeFit) -> str:
        """What differs from the base, with its value; "" if nothing does."""
        return ", ".join(f"{word} {self.recipe[word]}" for word in self.differing(base))


@dataclass(frozen=True)
class RecipeFits:
    """The fits by name, what they have in common, and the answers that they were measured on."""

    fits: Mapping[str, RecipeFit]
    made: Mapping[str, Any]
    watched: Mapping[str, Any]

    def like(self, base: str) -> tuple[RecipeFit, ...]:
        """The base and all fits by its recipe, of any length and seed, the shortest first."""
        own = self.fits[base]
        return tuple(sorted((one for one in self.fits.values() if one.differing(own) in SAME),
                            key=lambda one: one.tokens))

    def others(self, base: str) -> tuple[RecipeFit, ...]:
        """The fits by another recipe from the same start, the best first."""
        own = self.fits[base]
        return tuple(sorted((one for one in self.fits.values() if START not in one.differing(own)
                             and one.differing(own) not in SAME), key=lambda one: -one.watched))


def read_fit(folder: Path, drafter: str) -> RecipeFit:
    """The fit of this drafter in a folder of checkpoints; Refusal without a card, a log, or watched answers."""
    from specdec_lib.training.fit import KEPT_LOG, read_log

    try:
        card = json.loads((folder / drafter / "card.json").read_text(encoding="utf-8"))
        settings, made, told = card["settings"], card["made"], card["measured"]["watched"][drafter]
        log = read_log(folder / drafter / KEPT_LOG)
        begun = settings.get("begun_from")
        recipe = {word: settings[name] for name, word in KEPT.items() if name in settings}
        recipe[START] = f"a fit of {begun['tokens_seen']:,} tokens" if begun else "the target's layers"
        looks = (line["watched"][drafter][TAU] for line in log if "watched" in line)
        return RecipeFit(folder.name, recipe, made["tokens_seen"], round(fastest_quarter(log), 1), next(looks, None),
                         told[TAU], tuple(told[BY_DEPTH]), made["command"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refusal(f"{folder} holds no fit of {drafter} that watched answers ({type(error).__name__}): train with "
                      "--watch FILE") from None


def fastest_quarter(log: Sequence[Mapping[str, Any]]) -> float:
    """Tokens a second above which a quarter of a log's steps lie: other work on the machine slows the rest."""
    steps = [line for line in log if "loss" in line]
    speeds = [(two["tokens"] - one["tokens"]) / (two["seconds"] - one["seconds"])
              for one, two in zip(steps, steps[1:], strict=False) if two["seconds"] > one["seconds"]]
    if not speeds:
        raise ValueError("a log of fewer than two steps has no speed")
    return float(np.quantile(speeds, 0.75))


def keep_fits(folders: Sequence[Path], drafter: str, out: Path, watched: Mapping[str, Any]) -> None:
    """Writes the fits in these folders as one JSON file.

    What all of them have in common (commit, machine, data) is taken from the first card.
    """
    fits = [read_fit(folder, drafter) for folder in folders]
    made = json.loads((folders[0] / drafter / "card.json").read_text(encoding="utf-8"))["made"]
    told = {"watched": dict(watched), "made": {name: made[name] for name in MADE if name in made},
            "fits": [asdict(fit) for fit in fits]}
    write_text(out, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def load_fits(path: Path = SHIPPED) -> RecipeFits:
    """The fits of a file that `keep_fits` wrote; Refusal for another one."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        fits = [RecipeFit(**{**one, "by_depth": tuple(one["by_depth"])}) for one in told["fits"]]
        return RecipeFits(ByName({fit.name: fit for fit in fits}, "fit"), told["made"], told["watched"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"{path} holds no fits of recipes ({type(error).__name__})") from None


def ends_of(fits: Sequence[RecipeFit]) -> list[tuple[float, float]]:
    """(million tokens seen, tokens per forward) at the ends of these fits."""
    return [(one.tokens / 1e6, one.watched) for one in fits]


def law_of(fits: RecipeFits, base: str) -> tuple[PowerLaw, float]:
    """The law through the ends of the base's fits, and the farthest that one of them lies from the law of the others.

    Of three fits no law leaves one out, so they are held against their own, which lies closer.
    """
    ends = ends_of(fits.like(base))
    law, without = power_laws(ends)
    return law, max(abs(value - other.at(tokens)) for (tokens, value), other
                    in zip(ends, without or [law] * len(ends), strict=True))


def gap(one: RecipeFit, law: PowerLaw) -> float:
    """How many tokens per forward a fit has more than the law after as much text."""
    return one.watched - law.at(one.tokens / 1e6)


def fit_rows(fits: RecipeFits, base: str, law: PowerLaw) -> list[dict[str, object]]:
    """A row of a table for every fit from the base's start: its text, what it reached, and what the law has there."""
    own = fits.fits[base]
    return [{"what differs": one.changed(own) or "nothing", "million tokens seen": one.tokens / 1e6,
             "tokens per forward": one.watched, "more than the law": gap(one, law),
             "tokens read a second": f"{one.speed:,.0f}"}
            for one in (*fits.like(base), *fits.others(base))]


def recipe_texts(fits: RecipeFits, base: str, law: PowerLaw, noise: float) -> list[str]:
    """For every other recipe from the base's start whether it lies over twice `noise` from the law, in words."""
    own = fits.fits[base]
    return [f"{recipe_verdict(gap(one, law), noise)}: {one.changed(own)}, {gap(one, law):+.3f} tokens per forward; the"
            f" base's own fits lie up to {noise:.3f} from the law of the others" for one in fits.others(base)]


def recipe_verdict(distance: float, noise: float) -> str:
    """What a distance from the law shows of a recipe where the base's own fits scatter by `noise`."""
    return "no difference shown" if abs(distance) <= 2 * noise else "above the law" if distance > 0 else "below the law"


def made_row(made: Mapping[str, Any]) -> dict[str, object]:
    """Where fits were made as a row of a table: a short commit, and numbers of tokens with commas."""
    words = {"tokens_of_data": "tokens of the answers"}
    return {words.get(name, name): value[:8] if name == "commit" else f"{value:,}" if isinstance(value, int) else value
            for name, value in made.items()}


def far_points(fits: RecipeFits, later: str, largest: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """(million tokens, tokens per forward) measured beyond the base's fits: the head that `later` went on from, where
    its text is known, and the ends of the `largest` fits, of which Refusal wants one or more."""
    if not largest:
        raise Refusal("`largest` names no fit: name one or more that lie far beyond the base's")
    points, reached = {}, fits.fits[later].started
    if HEAD in fits.made and reached is not None:
        points["measured, the head gone on from"] = [(fits.made[HEAD] / 1e6, reached)]
    return points | {f"measured, {name}": ends_of([fits.fits[name]]) for name in largest}


def missed_text(fits: RecipeFits, largest: Sequence[str], law: PowerLaw) -> str:
    """By how much the law of the base's fits misses each of the largest fits, in words."""
    return "; ".join(f"{name}, after {tokens:.1f} million tokens: {value:.2f} measured, {law.at(tokens):.2f} predicted"
                     for name in largest for tokens, value in ends_of([fits.fits[name]]))


def reached_text(fits: RecipeFits, goal: float) -> str:
    """Which fit reached a goal, in tokens per forward, after the least text, that of the head gone on from included."""
    before = {name: fits.made.get(HEAD) if str(one.recipe.get(START)).startswith("a fit of") else 0
              for name, one in fits.fits.items()}
    found = [((one.tokens + more) / 1e6, one.watched, name) for (name, one), more in
             zip(fits.fits.items(), before.values(), strict=True) if one.watched >= goal and more is not None]
    if not found:
        return f"measured: no fit here reached {goal:.2f} tokens per forward"
    tokens, value, name = min(found)
    return f"measured: {goal:.2f} tokens per forward are reached by {name}, {value:.2f} after {amount(tokens)}"
