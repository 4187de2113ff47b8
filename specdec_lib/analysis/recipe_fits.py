"""Fits of one drafter by different recipes, on the same answers: read from their cards, kept as one file, compared.

A fit is a folder that `specdec train NAME --watch FILE --out FOLDER` wrote. All of them are compared with one, the
base, and differences are to be read beside that of two fits which differ in their seed alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specdec_lib.files import write_text
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "results" / "recipes.json"
TAU, BY_DEPTH = "tokens_per_target_forward", "conditional_acceptance"
KEPT = {"slot": "loss", "depth": "depth weights", "rows": "draft vocabulary", "trained_depth": "steps unrolled",
        "rate": "learning rate", "seed": "seed"}   # settings of a card that recipes differ in, and their words here
MADE = ("commit", "date", "machine", "threads", "dtype", "torch", "tokens_of_data")


@dataclass(frozen=True)
class RecipeFit:
    """One fit: its recipe, how long it took, and what it measured (tokens per target forward, teacher-forced)."""

    name: str
    recipe: Mapping[str, Any]
    minutes: float                                 # of training alone
    tokens: int                                    # seen in this fit
    started: float | None                          # watched answers before the first step; None: not measured
    watched: float                                 # answers to other people's prompts, never trained on
    by_depth: tuple[float, ...]                    # P(accepted at depth k | accepted before), watched
    command: str
    loop: Mapping[str, float] | None = None        # `times_ar` and `tokens_per_second` in decodes; None: not measured

    def changed(self, base: RecipeFit) -> str:
        """What differs from the base in words; "" if nothing does."""
        return ", ".join(f"{word} {self.recipe[word]}" for word in self.differing(base))

    def differing(self, base: RecipeFit) -> list[str]:
        """The words of the recipe that have another value than in the base."""
        return [word for word in self.recipe if self.recipe[word] != base.recipe.get(word)]


@dataclass(frozen=True)
class RecipeFits:
    """The fits by name, what they have in common, and the answers that they were measured on."""

    fits: Mapping[str, RecipeFit]
    made: Mapping[str, Any]
    watched: Mapping[str, Any]

    def of_equal_minutes(self, base: str, within: float = 0.15) -> tuple[RecipeFit, ...]:
        """The base, then the fits from the same start that trained as long, to a share of `within`; best first."""
        own = self.fits[base]
        rest = [fit for fit in self.fits.values() if fit is not own and "begun from" not in fit.differing(own)
                and abs(fit.minutes - own.minutes) <= within * own.minutes]
        return own, *sorted(rest, key=lambda fit: -fit.watched)


def read_fit(folder: Path, drafter: str, loop: Mapping[str, float] | None = None) -> RecipeFit:
    """The fit of this drafter in a folder of checkpoints; Refusal where it has no card or watched no answers."""
    try:
        card = json.loads((folder / drafter / "card.json").read_text(encoding="utf-8"))
        settings, made, told = card["settings"], card["made"], card["measured"]["watched"][drafter]
        begun = settings.get("begun_from")
        recipe = {word: settings[name] for name, word in KEPT.items() if name in settings}
        recipe["begun from"] = f"a fit of {begun['tokens_seen']:,} tokens" if begun else "the target's layers"
        return RecipeFit(folder.name, recipe, made["minutes"], made["tokens_seen"],
                         first_look(folder / drafter, drafter), told[TAU], tuple(told[BY_DEPTH]), made["command"], loop)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refusal(f"{folder} holds no fit of {drafter} that watched answers ({type(error).__name__}): train with "
                      "--watch FILE") from None


def first_look(folder: Path, drafter: str) -> float | None:
    """Tokens per target forward on the watched answers before the first step, from a kept log; None without one."""
    from specdec_lib.training.fit import KEPT_LOG, read_log

    if not (folder / KEPT_LOG).is_file():
        return None
    looks = (line["watched"][drafter][TAU] for line in read_log(folder / KEPT_LOG) if "watched" in line)
    return next(looks, None)


def keep_fits(folders: Sequence[Path], drafter: str, out: Path, watched: Mapping[str, Any],
              loops: Mapping[str, Mapping[str, float]] | None = None) -> None:
    """Writes the fits in these folders as one JSON file; `loops` holds speeds in decodes, by a folder's name.

    What all of them have in common (commit, machine, data) is taken from the first card.
    """
    fits = [read_fit(folder, drafter, (loops or {}).get(folder.name)) for folder in folders]
    made = json.loads((folders[0] / drafter / "card.json").read_text(encoding="utf-8"))["made"]
    told = {"watched": dict(watched), "made": {name: made[name] for name in MADE if name in made},
            "fits": [asdict(fit) for fit in fits]}
    write_text(out, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def load_fits(path: Path = SHIPPED) -> RecipeFits:
    """The fits of a file that `keep_fits` wrote; Refusal for another one."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        fits = [RecipeFit(**{**one, "by_depth": tuple(one["by_depth"])}) for one in told["fits"]]
        return RecipeFits({fit.name: fit for fit in fits}, told["made"], told["watched"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"{path} holds no fits of recipes ({type(error).__name__})") from None


def fit_rows(fits: RecipeFits, base: str) -> list[dict[str, object]]:
    """A row of a table for every fit of equal minutes: what differs from the base, what it saw and what it reached."""
    own = fits.fits[base]
    return [{"what differs": one.changed(own) or "the base", "minutes": one.minutes,
             "million tokens seen": one.tokens / 1e6, "tokens per forward": one.watched,
             "more than the base": one.watched - own.watched} for one in fits.of_equal_minutes(base)]


def seed_difference(fits: RecipeFits, base: str) -> float | None:
    """The largest difference between the base and a fit that differs in its seed alone; None without such a fit."""
    own = fits.fits[base]
    found = [abs(one.watched - own.watched) for one in fits.of_equal_minutes(base)[1:]
             if one.differing(own) == ["seed"]]
    return max(found, default=None)


def recipe_findings(fits: RecipeFits, base: str) -> list[tuple[str, bool | None]]:
    """For every other recipe in equal minutes a sentence and whether it differs by more than two seeds do."""
    own, noise = fits.fits[base], seed_difference(fits, base)
    said = []
    for one in fits.of_equal_minutes(base)[1:]:
        if one.differing(own) not in ([], ["seed"]):
            changed, gap = one.changed(own), one.watched - own.watched
            said.append((f"{changed} makes a difference: {gap:+.3f} tokens per forward, where seeds make one of "
                         f"{noise:.3f}" if noise is not None else f"{changed} makes a difference: {gap:+.3f}",
                         None if noise is None else abs(gap) > noise))
    return said


def ends_of_lengths(fits: RecipeFits, base: str) -> list[tuple[float, float]]:
    """(million tokens seen, tokens per forward) at the ends of all fits by the base's recipe, of any length."""
    own = fits.fits[base]
    return sorted((one.tokens / 1e6, one.watched) for one in fits.fits.values()
                  if one.differing(own) in ([], ["seed"]))


def training_rows(fits: RecipeFits, base: str) -> list[dict[str, object]]:
    """A row for every fit of equal minutes: the tokens a second of its training, the fastest first."""
    own = fits.fits[base]

    def speed(one: RecipeFit) -> float:
        return one.tokens / one.minutes / 60

    return [{"what differs": one.changed(own) or "the base", "tokens a second in training": speed(one),
             "times the base": speed(one) / speed(own)}
            for one in sorted(fits.of_equal_minutes(base), key=speed, reverse=True)]


def tokens_learned(card: Mapping[str, Any]) -> int:
    """The tokens that a checkpoint learned from: of its fit, and of the one that it went on from."""
    return card["made"]["tokens_seen"] + (card["settings"].get("begun_from") or {}).get("tokens_seen", 0)


def loop_rows(fits: RecipeFits) -> list[dict[str, object]]:
    """A row for every fit that was measured in decodes."""
    return [{"fit": one.name, "draft vocabulary": one.recipe["draft vocabulary"], **one.loop}
            for one in fits.fits.values() if one.loop]
