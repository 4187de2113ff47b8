"""From the words of a command line to a plan, its prompts and its world; bad words are refused before models load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from specdec_lib import catalog
from specdec_lib.bench import diffusion_source as diffuser
from specdec_lib.bench import draft_source, provenance, run
from specdec_lib.bench import prompts as prompt_files
from specdec_lib.bench.environment import Environment, device_of, dtype_of, open_environment
from specdec_lib.bench.plan import FILE, Plan, cards_of, checkpoints_among, named, needs
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.checkpoints.card import CARD, read_card
from specdec_lib.checkpoints.checkpoint_files import SHIPPED
from specdec_lib.cost import curves
from specdec_lib.types import Refusal

Say = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """A checked plan with its prompts; nothing is loaded yet."""

    plan: Plan
    prompts: tuple[Prompt, ...] = ()
    saved_curve: curves.CostCurve | None = None
    shelf: Path = SHIPPED                          # the folder of trained checkpoints
    needs: tuple[str, ...] = ()                    # what its methods ask a kit for

    def world(self, say: Say) -> Environment:
        """Loads target, tokenizer, draft model, peers and the checkpoints its methods need, no others.

        Sets the number of threads for this process. Refusal where a checkpoint does not fit the target.
        """
        plan = self.plan
        if plan.threads is not None:
            torch.set_num_threads(plan.threads)
        world = open_environment(plan.target, plan.device, plan.dtype, plan.threads, plan.draft, plan.peers,
                                 plan.temperature, say, self.shelf, "draft" in self.needs, plan.diffusion)
        for name in checkpoints_among(self.needs):
            world.checkpoints[name]                # refused now, before anything is measured
        return world


def setting(methods: str, prompts: Path | None = None, target: str = "smollm2-135m", device: str = "auto",
            dtype: str = "auto", threads: int | None = None, max_new_tokens: int = 128, limit: int | None = None,
            repeats: int = 1, temperature: float = 0.0, seed: int = 0, store: Path | None = None,
            curve: Path | None = None, peers: str = "", draft: str | None = None,
            checkpoints: Path | None = None, parts: Sequence[str] = (), orders: str = FILE,
            diffusion: str | None = None) -> Setting:
    """The setting that these words describe; `parts` are made beside the methods.

    Raises Refusal for the first word that cannot be.
    """
    device = device_of(device)
    names = tuple(catalog.split(methods))
    if not names:
        raise Refusal("name at least one method, such as ar; `specdec methods` lists them")
    if store is not None and not store.exists():
        raise Refusal(f"there is no store at {store}: check the path")
    shelf = shelf_at(checkpoints)
    path = prompts or prompt_files.default_path()
    plan = Plan(names, tuple(catalog.split(peers)), path.name, prompt_files.file_sha256(path), limit, target, device,
                dtype_of(dtype, device), torch.get_num_threads() if threads is None else threads,
                max_new_tokens, repeats, temperature, seed, store and str(store), draft, curve and str(curve),
                orders=tuple(catalog.split(orders)), diffusion=diffusion)
    draft_source.check_draft(draft, shelf, plan.peers)
    needed = needs([card for spec in plan.methods for card in cards_of(spec)] + [*map(catalog.part_card, parts)])
    diffuser.check_diffusion(diffusion, needed)
    needed = list(dict.fromkeys([*needed, *(name for spec in plan.methods for name in named(spec))]))
    may_draft = draft_source.candidate(draft, "draft" in needed, shelf)
    wanted = dict.fromkeys([*checkpoints_among(needed), *([may_draft] if may_draft else [])])
    if diffusion is not None:
        del wanted[diffuser.STANDS_FOR]
    else:
        wanted |= dict.fromkeys(preferred(plan.methods, shelf))
    chosen = prompt_files.balanced(prompt_files.load_prompts(path), limit)
    return Setting(replace(plan, checkpoints=sums(wanted, shelf)), tuple(chosen), _curve(curve), shelf, tuple(needed))


def shelf_at(folder: Path | None) -> Path:
    """The folder of checkpoints, the shipped one unless another is given; Refusal where that is not there."""
    if folder is not None and not folder.is_dir():
        raise Refusal(f"there is no folder of checkpoints at {folder}: check the path")
    return SHIPPED if folder is None else folder


def preferred(specs: Iterable[str], shelf: Path) -> list[str]:
    """The checkpoints on the shelf that these methods take without being told to; none where a spec says which."""
    liked = [name for spec in specs if not named(spec) for card in cards_of(spec) for name in card.prefers]
    return [name for name in liked if (shelf / name / CARD).is_file()]


def sums(names: Iterable[str], shelf: Path) -> dict[str, str] | None:
    """These checkpoints, each with the sum of its weights; Refusal for one that is missing."""
    return {name: read_card(shelf, name)["sha256"] for name in names} or None


def bench(here: Setting, out: Path, progress: run.Progress, say: Say) -> dict:
    """Runs or resumes the setting's bench in `out`. A finished one is read, and no model is loaded."""
    folder = RunFolder(out, here.plan)
    if folder.finished:
        say(f"{out} holds this very run, finished: nothing is measured again")
        return folder.summary()
    world = here.world(say)
    return run.run_bench(here.plan, world, here.prompts, out,
                         lambda: here.saved_curve or measured_curve(here, (256,), 15, progress, world), progress)


def measured_curve(here: Setting, contexts: tuple[int, ...], repeats: int, progress: run.Progress,
                   world: Environment) -> curves.CostCurve:
    """The cost curve of this target on this machine."""
    longest = world.target.context
    fitting = tuple(c for c in contexts if longest is None or c + max(curves.WIDTHS) < longest)
    if not fitting:
        raise Refusal(f"the target's context holds {longest} tokens, too few to measure a curve at {contexts[0]}")
    plan = here.plan
    return curves.measure_curve(world.target.fresh(), contexts=fitting, repeats=repeats,
                                vocab=min(1000, world.facts.vocab or 1000),
                                progress=lambda done, total: progress(done, total, "cost curve"),
                                target=plan.as_dict()["target"], device=plan.device, dtype=plan.dtype,
                                threads=plan.threads, provenance=provenance.provenance())


def _curve(path: Path | None) -> curves.CostCurve | None:
    return None if path is None else curves.load_curve(path)
