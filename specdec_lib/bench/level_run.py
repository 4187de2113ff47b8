"""The levels of a finished run's stacks, measured on what its target wrote: what predictions of that run are made from.

    from specdec_lib.bench.level_run import measure_run_levels
    measure_run_levels("data/results/hierarchical")

writes `levels.json` into the folder. Costs are measured on this machine, so measure them where the run was measured,
and as undisturbed. Of the run it reads prompts and what plain decoding wrote, and no time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch

from specdec_lib import catalog
from specdec_lib.bench.environment import Environment, open_environment
from specdec_lib.bench.level_times import PASSES, level_times
from specdec_lib.bench.prompts import default_path, load_prompts
from specdec_lib.bench.results import Decode, read_results, select
from specdec_lib.cards import Kit
from specdec_lib.checkpoints.checkpoint_files import SHIPPED
from specdec_lib.cost.levels import GivenText, LevelMeasurements, measured_levels
from specdec_lib.sampling import Sampling
from specdec_lib.specs import parse_part
from specdec_lib.types import LM, Refusal
from specdec_lib.what.hierarchy import COPIES, drafter_names, level_model

FILE = "levels.json"
TARGET = "target"


def measure_run_levels(folder: str | Path, prompts: str | Path | None = None, passes: int = PASSES,
                       shelf: Path = SHIPPED, say: Callable[[str], None] = lambda line: None) -> LevelMeasurements:
    """Measures every model of the run's stacks, writes `levels.json` into its folder and returns it.

    `prompts` is the run's prompt file, by default the project's own. Refusal if the folder holds no run with stacks.
    """
    folder = Path(folder)
    try:
        said = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        names = models_of(said["methods"])
        where = said["target"], said["device"], said["dtype"], said["threads"], said.get("draft")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Refusal(f"{folder} holds no finished run ({error}): measure one with `specdec bench`") from None
    if not names:
        raise Refusal(f"the run in {folder} has no hierarchical(stack=...) whose models could be measured")
    if where[3] is not None:
        torch.set_num_threads(where[3])
    world = open_environment(*where, say=say, shelf=shelf)
    texts = plain_answers(world, read_results(folder), Path(prompts or default_path()))
    sampling = (Sampling(said["temperature"], said.get("top_k", 0), said.get("top_p", 1.0))
                if said.get("temperature") else None)
    found = levels_of(world, names, texts, sampling, passes)
    found.save(folder / FILE)
    return found


def models_of(specs: list[str]) -> list[str]:
    """The models that the stacks of these methods name, each once."""
    stacks = [part.values["stack"] for part in map(parse_part, (spec.split("@")[0] for spec in specs))
              if part.name == "hierarchical" and "stack" in part.values]
    return list(dict.fromkeys(name for stack in stacks for name in drafter_names(stack) if name not in COPIES))


def plain_answers(world: Environment, decodes: list[Decode], prompts: Path) -> list[GivenText]:
    """The first turns of plain decoding in a run, with their prompts."""
    asked = {str(one.question_id): one.asked() for one in load_prompts(prompts)}
    first = list(select(decodes, method="ar", turn=0, repeat=0))
    lost = [one.question_id for one in first if str(one.question_id) not in asked]
    if lost:
        raise Refusal(f"the question {lost[0]} of the run is not in {prompts.name}: give the run's own prompts")
    return [GivenText(tuple(world.encode(asked[str(one.question_id)])), one.outcome.tokens)
            for one in first]


def levels_of(world: Environment, names: list[str], texts: list[GivenText], sampling: Sampling | None,
              passes: int) -> LevelMeasurements:
    """The costs and acceptances of these models and of the target, from new caches as every decode has them."""
    def opened() -> dict[str, LM]:
        kit = Kit(world.target.fresh(), world.facts, draft=world.draft, checkpoints=world.checkpoints,
                  parts=catalog.make_part)
        return {name: level_model(kit, name) for name in names} | {TARGET: kit.target}

    about = {name: world.about.get(name) for name in ("name", "device", "dtype", "threads")}
    return measured_levels(opened(), level_times(opened, texts, sampling, passes), texts, sampling, about)
