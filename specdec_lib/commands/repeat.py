"""`specdec repeat`: measures a finished run again from its own settings, and says what came out again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from specdec_lib.analysis.repeated_run import MethodTwice, changed_places, methods_twice, verdict
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.bench.plan import FILE
from specdec_lib.bench.prompts import default_path, file_sha256
from specdec_lib.bench.results import read_turns
from specdec_lib.bench.run_folder import OF_A_PLAN, SETTINGS
from specdec_lib.commands.text_table import print_table
from specdec_lib.files import refuse_special
from specdec_lib.schedules.workers import INLINE
from specdec_lib.types import Refusal

AS_IT_WAS = ("target", "device", "dtype", "threads", "max_new_tokens", "repeats", "temperature", "top_k", "top_p",
             "seed", "batch", "system")
PATHS = ("store", "draft", "diffusion", "eagle", "dflash")       # a run keeps only their names
TEXTS = (*PATHS, "target", "device", "dtype", "workers", "system")
COUNTS = ("threads", "max_new_tokens", "repeats", "top_k", "seed", "limit", "batch")


def repeat_options(run: Path, out: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that repeat the run of this folder in `out`; `given` ones that are not None win over the run's.

    Its own cost curve is used, since node budgets come from it; where it was refitted, that of the start. Refusal where
    the folder holds no run of a bench, and where the run read files of which it kept only the names.
    """
    if out.resolve() == run.resolve():
        raise Refusal(f"{run} is the run itself: give the repetition an --out of its own")
    settings = kept_json(run, SETTINGS)
    if not settings.keys() >= OF_A_PLAN or not of_their_kinds(settings):
        raise Refusal(f"{run / SETTINGS} is not of a run of `specdec bench`, and only such runs are repeated")
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in PATHS:
        if settings.get(name) and name not in chosen and looks_like_a_file(settings[name]):
            raise Refusal(f"the run in {run} used the {name} {settings[name]} and kept only its name: give --{name}")
    own = {name: settings[name] for name in (*AS_IT_WAS, *PATHS) if settings.get(name) is not None}
    curve = {"cost": run / "cost.json"} if (run / "cost.json").is_file() else {}
    return {**own, **curve, "methods": ",".join(settings["methods"]), "peers": ",".join(settings.get("peers", ())),
            "limit": settings.get("limit"), "orders": ",".join(settings.get("orders", [FILE])),
            "workers": settings.get("workers") or INLINE,          # which a plan does not write down
            "template_switches": ",".join(settings.get("template_switches", ())),
            "prompts": kept_prompts(run, settings, chosen.get("prompts")), **chosen}


def of_their_kinds(settings: Mapping[str, Any]) -> bool:
    """Whether what a repetition reads of a run's settings is of the kind that a bench writes there."""
    lists = [settings.get(name, []) for name in ("methods", "peers", "orders", "template_switches")]
    return (all(isinstance(settings.get(name), str | None) for name in TEXTS)
            and all(type(settings.get(name)) in (int, type(None)) for name in COUNTS)
            and all(type(settings.get(name)) in (int, float, type(None)) for name in ("temperature", "top_p"))
            and all(isinstance(some, list) and all(isinstance(one, str) for one in some) for some in lists))


def looks_like_a_file(name: str) -> bool:
    """Whether a setting names a file or folder; words such as ngram and hub names with an owner are no paths."""
    return Path(name).suffix != "" and "/" not in name


def kept_prompts(run: Path, settings: Mapping[str, Any], given: Path | None) -> Path:
    """The file of prompts that the run read: the given one, or the shipped one of its name; checked by its SHA-256."""
    path = given or default_path().parent / Path(str(settings.get("prompts"))).name
    if not path.is_file():
        raise Refusal(f"the run in {run} read the prompts {settings.get('prompts')}, which are not shipped: give "
                      "--prompts")
    if file_sha256(path) != settings["sha256"]:
        raise Refusal(f"{path} is not the file of prompts that the run in {run} read: its checksum differs")
    return path


def kept_json(run: Path, name: str) -> dict[str, Any]:
    """A JSON object of a run's folder; Refusal where there is none."""
    refuse_special(run / name)
    try:
        found = json.loads((run / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(f"{run} holds no finished run ({name}: {type(error).__name__}): name the folder of one, such as "
                      "data/results/respec") from None
    if not isinstance(found, dict):
        raise Refusal(f"{run / name} is not of a run of `specdec bench`, and only such runs are repeated")
    return found


def show_repetition(run: Path, out: Path, quiet: bool = False, console: Console | None = None) -> None:
    """Prints both runs method by method, what differed between them, and what came out again."""
    rows = methods_twice(read_turns(run), read_turns(out))
    if not rows:
        raise Refusal(f"{run} and {out} have no turn of a prompt in common: repeat a run into a folder of its own")
    shown = console or Console()
    print_table(table(rows), shown, plain=quiet)
    for phrase in dict.fromkeys(changed_places(kept_json(run, "summary.json"), kept_json(out, "summary.json"))):
        shown.print(f"Different: {phrase}.", highlight=False, markup=False, soft_wrap=True)
    for sentence in verdict(rows, run.name):
        shown.print(sentence, highlight=False, markup=False, soft_wrap=True)


def table(rows: Sequence[MethodTwice]) -> list[dict[str, str]]:
    """One line for each method: what was kept, what is measured here, and the ratio of the two."""
    return [{"method": row.method, "per forward, kept": number(row.per_forward[0]), "here": number(row.per_forward[1]),
             "times ar, kept (95 %)": times(row.speedup[0], row.interval[0]),
             "here (95 %)": times(row.speedup[1], row.interval[1]),
             "here over kept (95 %)": times(row.ratio, row.ratio_interval) if row.method != "ar" else "",
             "same ids": f"{row.same} of {row.turns}"} for row in rows]


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def times(ratio: float | None, interval: Sequence[float] | None) -> str:
    """`1.63 (1.39 to 1.92)`."""
    return number(ratio) + (f" ({interval_text(interval)})" if ratio is not None and interval else "")
