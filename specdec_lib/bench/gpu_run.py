"""Everything that a GPU is asked, in one resumable run: tests, floor, costs, larger shapes, and the bench.

Each step writes its own file as it goes. A finished step is read and not run again; a cut loses the cell or prompt
under way.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import perf_counter

import torch

from specdec_lib import catalog
from specdec_lib.bench import usable
from specdec_lib.bench.environment import DTYPES, Environment, open_environment
from specdec_lib.bench.gpu_cells import CellFile, OutOfTime
from specdec_lib.bench.gpu_costs import CONTEXTS, COPY, SHAPES, WIDTHS, measure_costs, measure_floor, measure_shapes
from specdec_lib.bench.gpu_drafts import SPECS, measure_drafts
from specdec_lib.bench.gpu_kernels import measure_kernels
from specdec_lib.bench.gpu_tests import ROOT, run_tests
from specdec_lib.bench.options import RunOptions, bench_prepared, prepare
from specdec_lib.bench.plan import REPORT_PEERS
from specdec_lib.bench.provenance import without_folders
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.cards import Kit
from specdec_lib.checkpoints.trainable import PRONOUNCING
from specdec_lib.files import DiskFull, alone_in, write_text
from specdec_lib.hub.load import load_lm
from specdec_lib.hub.locate import model_folder
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import Refusal

STEPS = ("tests", "floor", "cost", "shapes", "drafts", "kernels", "bench")
FIRST = ("ar", "sam+token-recycling", "eagle", "eagle2", "respec")                 # with the peers
SECOND = ("diffuspec", "block-diffusion", "ddtree", "draft-model", "sam", "sam+eagle2", "respec-relaxed")
Say = Callable[[str], None]


@dataclass(frozen=True)
class GpuPlan:
    """The options of a run, with device and dtype resolved."""

    out: Path
    target: str
    device: str
    dtype: str
    steps: tuple[str, ...] = STEPS
    minutes: float = 30.0
    limit: int | None = 24
    max_new_tokens: int = 96
    methods: tuple[str, ...] = ()                  # none: all that have what they need
    peers: tuple[str, ...] = REPORT_PEERS
    shapes: tuple[str, ...] = ("llama-3-8b", "qwen2.5-7b")
    prompts: Path | None = None
    widths: tuple[int, ...] = WIDTHS
    contexts: tuple[int, ...] = CONTEXTS
    copied: int = COPY

    def __post_init__(self):
        for kind, names, known in (("step", self.steps, STEPS), ("shape", self.shapes, tuple(SHAPES))):
            for name in names:
                if name not in known:
                    raise Refusal(f"there is no {kind} named {name!r}: take {', '.join(known)}")
        if not self.steps:
            raise Refusal(f"name at least one step, of {', '.join(STEPS)}")
        if not 0 < self.minutes < inf:
            raise Refusal(f"minutes are above 0 and finite, got {self.minutes}")

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Methods that are measured together, the most interesting ones first; each group has plain decoding."""
        if self.methods:
            return (self.methods,)
        there = [name for name, card in catalog.methods().items()
                 if not catalog.missing(card) and not {*catalog.needed_checkpoints(name)} & {*PRONOUNCING}]
        rest = tuple(name for name in there if name not in (*FIRST, *SECOND))
        return tuple(tuple(name for name in group if name in there) for group in (FIRST, SECOND, rest))


class GpuRun:
    """Runs the steps of a plan; `failed` names what went wrong on the way."""

    def __init__(self, plan: GpuPlan, say: Say):
        self.plan, self.say, self.failed = plan, say, []
        self.until = perf_counter() + 60 * plan.minutes
        self.lm: Transformer | None = None
        self.last = ""                             # decode of a bench that was begun

    def run(self) -> list[str]:
        """Takes all steps that are left, and returns what failed; OutOfTime where the minutes end before.

        Refusal for what the bench cannot run or continue, before anything is measured.
        """
        groups = self.plan.groups if "bench" in self.plan.steps else ()
        plans = {self.bench_folder(at): prepare(self.options(at, group)).plan for at, group in enumerate(groups)}
        if self.plan.device == "cpu":
            self.say("no GPU is used: all that follows is measured on the CPU")
        with alone_in(self.plan.out):
            for out in filter(Path.exists, plans):
                with RunFolder.alone(out, plans[out]) as folder:
                    folder.refuse_damaged()
            for name in self.plan.steps:
                self.check()
                self.say(f"{name}: begun")
                start = perf_counter()
                getattr(self, name)()
                self.say(f"{name}: {perf_counter() - start:.0f} s")
        return self.failed

    def check(self) -> None:
        if perf_counter() > self.until:
            raise OutOfTime

    def file(self, name: str) -> CellFile:
        plan = self.plan
        return CellFile(plan.out / f"{name}.json", {"target": without_folders(plan.target), "device": plan.device,
                                                    "dtype": plan.dtype})

    def target(self) -> Transformer:
        """The target in our own decoder; Refusal for one that transformers runs."""
        if self.lm is None:
            found = load_lm(model_folder(self.plan.target, self.say), DTYPES[self.plan.dtype], self.plan.device)
            if not isinstance(found, Transformer):
                raise Refusal("costs are measured on our own decoder, and transformers runs this target: name one of"
                              " the Llama family, or leave the steps floor and cost out")
            self.lm = found
        return self.lm

    def close(self, file: CellFile) -> None:
        self.failed += [f"{file.path.name}: {cell['error']}" for cell in file.cells if "error" in cell]

    def tests(self) -> None:
        if not run_tests(self.plan.device, self.plan.out, self.say, self.check):
            self.failed.append(f"tests failed, see {self.plan.out / 'tests'}")

    def floor(self) -> None:
        file = self.file("floor")
        if not file.held["finished"]:
            measure_floor(file, self.target(), self.plan.contexts, self.plan.copied)

    def cost(self) -> None:
        file = self.file("cost")
        if not file.held["finished"]:
            measure_costs(file, self.target(), self.check, self.plan.widths, self.plan.contexts)
        self.close(file)

    def shapes(self) -> None:
        file, plan = self.file("shapes"), self.plan
        if not file.held["finished"]:
            measure_shapes(file, plan.shapes, torch.device(plan.device), DTYPES[plan.dtype], self.check,
                           ROOT / "data/results", plan.widths, plan.contexts)
        self.close(file)

    def drafts(self) -> None:
        """Each captured work alone and the parts of rounds, of the methods whose drafters are captured."""
        file = self.file("drafts")
        if not file.held["finished"]:
            measure_drafts(file, *self.drafters(), self.plan.max_new_tokens)
        self.close(file)

    def kernels(self) -> None:
        """What each captured work launches, of the same methods."""
        file = self.file("kernels")
        if not file.held["finished"]:
            measure_kernels(file, *self.drafters())
        self.close(file)

    def drafters(self) -> tuple[Environment, Callable[[], None], tuple[str, ...]]:
        """The world with its checkpoints, the check of the time, and the methods of `SPECS` that it has."""
        world = open_environment(self.plan.target, self.plan.device, self.plan.dtype, say=self.say)
        kit = Kit(world.target, draft=world.draft, checkpoints=world.checkpoints, parts=catalog.make_part)
        return world, self.check, tuple(spec for spec in SPECS if usable.why_unusable(spec, kit) is None)

    def bench(self) -> None:
        """Each group is a bench run in a folder of its own; one that fails leaves the next alone.

        What failed is written beside its folder, with the last decode that was begun, until it runs without a failure.
        """
        for place, group in enumerate(self.plan.groups):
            out = self.bench_folder(place)
            error_file = out.with_name(f"{out.name}-error.txt")
            try:
                self.bench_group(self.options(place, group), out)
                error_file.unlink(missing_ok=True)
            except (OutOfTime, DiskFull):      # a full disk is full for the next group, too
                raise
            except Exception as error:             # whatever a device makes of it, the other groups are measured
                write_text(error_file, f"{', '.join(group)}; last begun: {self.last}\n\n{traceback.format_exc()}")
                self.failed.append(f"{out.name}: {type(error).__name__}: {str(error).splitlines()[:1]}")

    def bench_folder(self, place: int) -> Path:
        return self.plan.out / f"bench-{place + 1}"

    def options(self, place: int, methods: Sequence[str]) -> RunOptions:
        """The options of the bench of a group; the peers run with the first one."""
        plan = self.plan
        return RunOptions(methods=",".join(methods), prompts=plan.prompts, target=plan.target, device=plan.device,
                          dtype=plan.dtype, max_new_tokens=plan.max_new_tokens, limit=plan.limit,
                          peers="" if place else ",".join(plan.peers))

    def bench_group(self, options: RunOptions, out: Path) -> None:
        def progress(done: int, total: int, what: str) -> None:
            self.check()
            before, self.last = self.last, what
            if what.startswith(("prompt", "warm-up")) and what != before:
                self.say(f"{out.name}: {done} of {total} decodes, {what}")
        bench_prepared(prepare(options), out, progress, self.say)
