"""From command-line options to a checked plan and its prompts; wrong options are refused before models load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from specdec_lib import catalog
from specdec_lib.bench import batch_costs, batch_run, draft_source, provenance, published_source, run, usable
from specdec_lib.bench import diffusion_source as diffuser
from specdec_lib.bench import prompts as prompt_files
from specdec_lib.bench.environment import Environment, checksums_of, device_of, dtype_of, open_environment
from specdec_lib.bench.plan import FILE, REPORT_METHODS, Plan
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.run_folder import STORE, RunFolder, left_out_of
from specdec_lib.bench.seq2seq_environment import CONTEXT, PROMPTS, is_seq2seq
from specdec_lib.bench.spec_trial import try_specs
from specdec_lib.checkpoints.card import CARD, SHIPPED, read_card, shelf_at
from specdec_lib.checkpoints.trainable import ANY_TARGET
from specdec_lib.cost import curves
from specdec_lib.files import file_sha256
from specdec_lib.hub import locate
from specdec_lib.schedules.workers import kind_for
from specdec_lib.specs import MethodSpec, split_specs
from specdec_lib.types import Refusal

Say = Callable[[str], None]


@dataclass(frozen=True)
class RunOptions:
    """Unchecked command-line options; every command that loads a target passes one of these on."""

    methods: str | None = "ar"                      # None: those of `REPORT_METHODS` that the target can run
    prompts: Path | None = None                    # None = our own
    target: str = "smollm2-135m"
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None                     # None = all cores
    max_new_tokens: int = 128
    limit: int | None = None
    repeats: int = 1
    temperature: float = 0.0
    seed: int = 0
    store: Path | None = None
    cost: Path | None = None
    peers: str = ""
    draft: str | None = None
    checkpoints: Path | None = None                # None = the shipped ones
    orders: str = FILE
    diffusion: str | None = None
    eagle: str | None = None
    dflash: str | None = None
    workers: str = "auto"                          # where methods that overlap draft
    parts: tuple[str, ...] = ()                    # made besides the methods
    batch: int = 1
    top_k: int = 0
    top_p: float = 1.0
    system: str | None = None
    template_switches: str = ""

    @staticmethod
    def of(words: Mapping[str, Any], **more) -> RunOptions:
        """The options among these named values; the command handles the others."""
        own = {field.name for field in fields(RunOptions)}
        return RunOptions(**{name: value for name, value in {**words, **more}.items() if name in own})


@dataclass(frozen=True)
class PreparedRun:
    """A checked plan with its prompts; nothing is loaded yet."""

    plan: Plan
    prompts: tuple[Prompt, ...] = ()
    saved_curve: curves.CostCurve | None = None
    shelf: Path = SHIPPED                          # the folder of trained checkpoints
    needs: tuple[str, ...] = ()                    # what its methods need of a kit
    by_default: bool = False                       # nobody named the methods: some may be left out
    why_out: Mapping[str, str] = field(default_factory=dict)         # of those that were at once

    def without(self, methods: Collection[str]) -> PreparedRun:
        """The same run without these of its methods, and with the models and checkpoints that the others use."""
        lost = tuple(str(spec) for spec in self.plan.methods if str(spec) in methods)
        if not lost:
            return self
        specs = tuple(spec for spec in self.plan.methods if str(spec) not in lost)
        needed = needs_of(specs)
        unused = [kind for kind, one in published_source.KINDS.items() if one.stands_for not in needed]
        plan = replace(self.plan, methods=specs, left_out=(*self.plan.left_out, *lost),
                       diffusion=self.plan.diffusion if diffuser.STANDS_FOR in needed else None,
                       **dict.fromkeys(unused))
        used = digests(wanted_checkpoints(plan, needed, self.shelf), self.shelf, plan.target)
        return replace(self, plan=replace(plan, checkpoints=used), needs=needed)

    def environment(self, say: Say) -> Environment:
        """Loads target, tokenizer, draft model, peers and the checkpoints its methods need, no others.

        Sets the number of threads for this process. Refusal where a checkpoint of a method that was named does not fit
        the target.
        """
        plan = self.plan
        if plan.threads is not None:
            torch.set_num_threads(plan.threads)
        opened = open_environment(plan.target, plan.device, plan.dtype, plan.threads, plan.draft, plan.peers,
                                  plan.sampling, say, self.shelf, "draft" in self.needs, plan.diffusion,
                                  published_source.given_among(plan), plan.chat)
        for name in () if self.by_default else catalog.checkpoints_among(self.needs):
            opened.checkpoints[name]               # refused now, before anything is measured
        store = self.checksums_at_hand([STORE])
        return replace(opened, loaded=lambda: {**opened.loaded(), **store})

    def checksums_at_hand(self, names: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of those of these models and checkpoints that need not be fetched, named as in `loaded`."""
        plan, found = self.plan, {}
        models = ("target", "draft", "diffusion", *published_source.KINDS)
        options = {f"--{name}": getattr(plan, name) for name in models}
        for name in names:
            if name == STORE:
                found |= {name: file_sha256(Path(plan.store))} if plan.store and Path(plan.store).is_file() else {}
            elif name in options:
                folder = locate.folder_at_hand(options[name] or "")
                found |= checksums_of({name: folder})
            elif (self.shelf / name / CARD).is_file():
                found[name] = read_card(self.shelf, name)["sha256"]
        return found


def prepare(options: RunOptions) -> PreparedRun:
    """The run that these options describe, checked before anything is loaded. Refusal for the first that is wrong."""
    shelf, why_out = shelf_at(options.checkpoints), why_left_out(options)
    plan, path = plan_of(options, why_out)
    draft_source.check_draft(plan.draft, shelf, plan.peers, plan.target)
    needed = needs_of(plan.methods, options.parts)
    diffuser.check_diffusion(plan.diffusion, needed)
    published_source.check_published(published_source.given_among(plan), needed)
    chosen = prompt_files.balanced(prompt_files.load_prompts(path), plan.limit)
    used = digests(wanted_checkpoints(plan, needed, shelf), shelf, plan.target)
    plan = replace(plan, checkpoints=used, dtype=asked_dtype(options, plan.device))      # last: it may fetch the target
    saved = None if options.cost is None else matching_curve(options.cost, plan)
    return PreparedRun(plan, tuple(chosen), saved, shelf, needed, options.methods is None, why_out)


def why_left_out(options: RunOptions) -> dict[str, str]:
    """The default methods whose checkpoint is missing, and why."""
    shelf, found = shelf_at(options.checkpoints), dict[str, str]()
    given = published_source.replaced(options) | ({diffuser.STANDS_FOR} if options.diffusion is not None else set())
    for name in REPORT_METHODS if options.methods is None else ():
        missing = [one for one in catalog.needed_checkpoints(name)
                   if one not in given and not (shelf / one / CARD).is_file()]
        try:
            digests(missing, shelf, options.target)
        except Refusal as why:
            found[name] = str(why)
    return found


def needs_of(specs: Sequence[MethodSpec], parts: Sequence[str] = ()) -> tuple[str, ...]:
    """What these methods and parts need of a kit, with what parameters name."""
    cards = [card for spec in specs for card in catalog.cards_of(spec)]
    named = (need for spec in specs for need in catalog.named_needs(spec))
    return tuple(dict.fromkeys([*catalog.needs(cards + [*map(catalog.part_card, parts)]), *named]))


def plan_of(options: RunOptions, left_out: Collection[str] = ()) -> tuple[Plan, Path]:
    """The plan without its checkpoints and with its dtype as it was asked for, and the file of its prompts."""
    device = device_of(options.device)
    usual = [name for name in REPORT_METHODS if name not in left_out]
    names = usual if options.methods is None else split_specs(options.methods)
    if not names:
        raise Refusal("name at least one method, such as ar; `specdec methods` lists them")
    if options.store is not None and not options.store.exists():
        raise Refusal(f"there is no store at {options.store}: check the path")
    shelf_at(options.checkpoints)
    path = options.prompts or (PROMPTS if is_seq2seq(options.target) else prompt_files.default_path())
    threads = torch.get_num_threads() if options.threads is None else options.threads
    plan = Plan(tuple(map(catalog.method_spec, names)), tuple(split_specs(options.peers)), path.name,
                prompt_files.file_sha256(path), options.limit, options.target, device, options.dtype, threads,
                options.max_new_tokens, options.repeats, options.temperature, options.seed,
                options.store and str(options.store), options.draft, options.cost and str(options.cost),
                orders=tuple(split_specs(options.orders)), diffusion=options.diffusion, eagle=options.eagle,
                dflash=options.dflash, left_out=tuple(left_out), batch=options.batch, top_k=options.top_k,
                top_p=options.top_p,
                system=options.system, template_switches=tuple(split_specs(options.template_switches)))
    kind = kind_for(options.workers, device)
    if any(catalog.card_of(spec).parallel for spec in plan.methods):
        plan = replace(plan, workers=kind)
    try_specs(plan.methods, plan.sampling)
    return plan, path


def asked_dtype(options: RunOptions, device: str) -> str:
    """The dtype's full name; by default the encoder-decoder computes as it was trained, in float32."""
    own = is_seq2seq(options.target)
    if own:
        return dtype_of("float32" if options.dtype == "auto" else options.dtype, device)
    return dtype_of(options.dtype, device, four_bit=True, target=options.target)


def matching_curve(path: Path, plan: Plan) -> curves.CostCurve:
    """The saved curve; Refusal where it names another target, device or dtype than the plan's."""
    curve, asked = batch_costs.saved_curve(path, plan.batch), plan.as_dict()
    for name in ("target", "device", "dtype"):
        measured = getattr(curve, name)
        if measured and measured != asked[name]:
            raise Refusal(f"the cost curve {path} was measured with the {name} {measured} and this run has"
                          f" {asked[name]}: measure one with `specdec cost`, or leave --cost out")
    return curve


def wanted_checkpoints(plan: Plan, needed: Sequence[str], shelf: Path) -> dict[str, None]:
    """The checkpoints that the plan's methods use, in order, the draft model's included."""
    may_draft = draft_source.candidate(plan.draft, "draft" in needed, shelf)
    wanted: dict[str, None] = dict.fromkeys([*catalog.checkpoints_among(needed), *([may_draft] if may_draft else [])])
    for name in published_source.replaced(plan):
        wanted.pop(name, None)
    if plan.diffusion is None:
        return wanted | dict.fromkeys(preferred(plan.methods, shelf))
    del wanted[diffuser.STANDS_FOR]
    return wanted


def preferred(specs: Iterable[MethodSpec], shelf: Path) -> list[str]:
    """The existing checkpoints that these methods use by default; none for a spec that names its own."""
    cards = catalog.with_parts(card for spec in specs if not spec.checkpoint for card in catalog.cards_of(spec))
    liked = [name for card in cards for name in card.prefers]
    return [name for name in liked if (shelf / name / CARD).is_file()]


def digests(names: Iterable[str], shelf: Path, target: str) -> dict[str, str] | None:
    """Checkpoint -> SHA-256 of its weights, or None; Refusal for one that is missing."""
    return {name: read_card(shelf, name, target if name in ANY_TARGET else "")["sha256"] for name in names} or None


def bench_prepared(here: PreparedRun, out: Path, progress: run.Progress, say: Say) -> dict:
    """Runs or resumes the prepared bench in `out`. A finished one is only read; no model is loaded."""
    if here.by_default:
        here = here.without(left_out_of(out))      # of the run that was begun there
    with RunFolder.alone(out, here.plan) as folder:
        finished = folder.summary()
        if finished is not None:
            there = here.checksums_at_hand(folder.loaded)
            folder.refuse_other_weights(there, there)
            say(f"{out} already holds this finished run: nothing is measured again")
            return finished
        opened = here.environment(say)
        if here.by_default:
            here, opened = usable_methods(here, opened, say)
        else:
            usable.refuse_trees(here.plan.methods, opened.kit(here.plan, None))
        if not is_seq2seq(here.plan.target):       # whose context does not hold the prompt
            run.tell_short_room(here.plan, opened, here.prompts, say)
        if here.plan.batch == 1:
            run.tell_long_turns(here.plan, opened, here.prompts, say)
        usual = CONTEXT if is_seq2seq(here.plan.target) else 256

        def curve() -> curves.CostCurve:
            ends = opened.target.context
            room = usual if ends is None else ends - max(curves.WIDTHS) - 1        # of a short context
            contexts = (max(1, min(usual, room)),)
            return here.saved_curve or measured_curve(here, contexts, 15, progress, opened)

        if here.plan.batch > 1:
            return batch_run.run_batches(here.plan, opened, here.prompts, out, curve, progress)
        return run.run_bench(here.plan, opened, here.prompts, out, curve, progress, refits=here.saved_curve is None)


def usable_methods(here: PreparedRun, opened: Environment, say: Say) -> tuple[PreparedRun, Environment]:
    """The run without the methods that this target cannot run, named on `say`, and without what these alone loaded."""
    why = {str(spec): usable.why_unusable(spec, opened.kit(here.plan, None)) for spec in here.plan.methods}
    lost = {name: reason for name, reason in why.items() if reason is not None}
    if here.why_out or lost:
        say(usable.left_out({**here.why_out, **lost}))
    left = here.without(lost)
    gone = (here.plan.checkpoints or {}).keys() - (left.plan.checkpoints or {}).keys()
    gone |= {f"--{name}" for name in ("diffusion", *published_source.KINDS) if getattr(left.plan, name) is None}
    return left, replace(opened, loaded=lambda: {name: sha256 for name, sha256 in opened.loaded().items()
                                                 if name not in gone})


def measured_curve(here: PreparedRun, contexts: tuple[int, ...], repeats: int, progress: run.Progress,
                   opened: Environment) -> curves.CostCurve:
    """The cost curve of this target on this machine."""
    plan, longest = here.plan, opened.target.context
    widths = batch_costs.widths_in_batch(plan.batch)
    fitting = tuple(c for c in contexts if longest is None or c + max(widths) < longest)
    if not fitting:
        raise Refusal(f"the target's context holds {longest} tokens, too few to measure a curve at {contexts[0]}"
                      f" with {max(widths)} more: give `specdec cost` shorter --contexts, or another target")
    lm = opened.target.fresh() if plan.batch == 1 else batch_costs.batch_of(opened, plan.batch)
    return curves.measure_curve(lm, widths, fitting, repeats, vocab=min(1000, opened.facts.vocab or 1000),
                                progress=lambda done, total: progress(done, total, "cost curve"),
                                target=plan.as_dict()["target"], device=plan.device, dtype=plan.dtype,
                                threads=plan.threads, provenance=provenance.provenance(), batch=plan.batch)
