"""`specdec record`: one file per prompt, named by its family.

Further drafters can be added to an existing recording: the target has to generate the same text again, and nothing
that was recorded before changes. `NAME=PART` records a part under a name of its own, such as
`draft-lm=draft-model` beside an untrained draft model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from specdec_lib import catalog
from specdec_lib.bench import provenance
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.run import fitting
from specdec_lib.bench.usable import left_out, why_unrecordable
from specdec_lib.cards import Kit
from specdec_lib.files import alone_in, file_stem
from specdec_lib.models.replay import Recording, load_recording, save_recording
from specdec_lib.recordings.record import NODES, Say, drafter_names, extended, record
from specdec_lib.types import Refusal

DRAFTERS = ("prompt-lookup", "suffix-automaton", "token-recycling", "draft-model")


def record_all(prompts: Sequence[Prompt], world: Environment, out: Path, drafters: Sequence[str] = (),
               max_new_tokens: int = 128, say: Say = lambda line: None, add: bool = False) -> list[Path]:
    """Records the first turn of each prompt in a file named by its family.

    Existing files stay as they are, or with `add` get those of `drafters` that they lack. Without `drafters` those of
    `DRAFTERS` are recorded that the target can have; Refusal where a named one cannot be.
    """
    parts, names = recordable(drafters, world, say), recording_names(prompts)
    source = provenance.provenance()               # taken before tracked files change
    paths = [out / name for name in names]
    for prompt, path in zip(prompts, paths, strict=True):
        if not path.exists():                      # one that is too long is refused before another is decoded
            fitting(world, prompt, prompt.asked())
    if add and not any(path.exists() for path in paths):
        say(f"{out} holds no recording of these prompts to add to: they are made anew")
    with alone_in(out):                            # another process would write over what was added meanwhile
        for prompt, path in zip(prompts, paths, strict=True):
            record_one(prompt, path, world, parts, max_new_tokens, say, add, source)
    return paths


def record_one(prompt: Prompt, path: Path, world: Environment, parts: Mapping[str, str], max_new_tokens: int, say: Say,
               add: bool, source: dict) -> None:
    """Records the first turn of a prompt in this file, or with `add` those of its drafters that the file lacks."""
    old = load_recording(path) if add and path.exists() else None
    lacking = {name: part for name, part in parts.items() if old is None or name not in old.drafts}
    if path.exists() and (old is None or not lacking):
        kept = "exists and is kept" if old is None else "has these drafters already"
        say(f"{path.name} {kept}{of_another_target(old or load_recording(path), world)}")
        return
    kit = recording_kit(world)
    tell = lambda line: say(f"{path.stem}: {line}")          # noqa: E731
    ids = world.encode(prompt.asked())
    if old is None:
        recording = record(ids, kit, lacking, max_new_tokens, say=tell)
        save_recording(replace(recording, about=describe(recording, prompt, world, source)), path)
    else:
        recording = extended(old, ids, kit, lacking, say=tell)
        save_recording(replace(recording, about=describe_added(recording, lacking, world, source)), path)


def of_another_target(old: Recording, world: Environment) -> str:
    """What to say of a kept recording whose target, or its dtype, is called otherwise than this one; else nothing."""
    mine, its = (" in ".join(str(about[key]) for key in ("name", "dtype") if key in about)
                 for about in (world.about, old.about.get("target", {})))
    return "" if mine == its else f": it is of {its}, and was not compared with {mine}"


def recording_names(prompts: Sequence[Prompt]) -> list[str]:
    """The file of each prompt: its family, and its question_id where the family has several. Refusal for two alike."""
    families, by_name = Counter(prompt.family for prompt in prompts), {}
    for prompt in prompts:
        taken = families[prompt.family] > 1
        name = file_stem(f"{prompt.family}{f'-{prompt.question_id}' if taken else ''}") + ".safetensors"
        if name in by_name:
            raise Refusal(f"prompts {by_name[name]} and {prompt.question_id} would both be recorded in {name}:"
                          " give one of them another category")
        by_name[name] = prompt.question_id
    return list(by_name)


def recording_kit(world: Environment) -> Kit:
    return Kit(world.target.fresh(), world.facts, nodes=NODES, draft=world.draft, checkpoints=world.checkpoints,
               parts=catalog.make_part)


def recordable(drafters: Sequence[str], world: Environment, say: Say) -> dict[str, str]:
    """Name -> part of these drafters, or of the default ones that this target can have; Refusal for a named one."""
    parts = drafter_names(drafters or DRAFTERS)
    why = {name: why_unrecordable(part, recording_kit(world)) for name, part in parts.items()}
    lost = {name: reason for name, reason in why.items() if reason is not None}
    if lost and drafters:
        name, reason = next(iter(lost.items()))
        raise Refusal(f"{name} cannot be recorded: {reason}; name others with --drafters")
    if lost:
        say(left_out(lost))
    return {name: part for name, part in parts.items() if name not in lost}


def describe(recording: Recording, prompt: Prompt, world: Environment, source: dict) -> dict:
    """The header of a recording: its origin, and the text of every token that occurs in it."""
    return {"family": prompt.family, "question_id": prompt.question_id, "text": prompt.turns[0],
            "target": dict(world.about), "vocab": world.facts.vocab, "end": sorted(world.facts.end),
            **tokenizer_facts(recording, world), "provenance": source}


def describe_added(recording: Recording, drafters: Mapping[str, str], world: Environment, source: dict) -> dict:
    """The header of an extended recording: the origin of the added drafters is listed under `added`."""
    old = recording.about
    words = [name if name == part else f"{name}={part}" for name, part in drafters.items()]
    now = {"drafters": words, "target": dict(world.about), "provenance": source}
    new = tokenizer_facts(recording, world)
    return {**old, **new, "pieces": {**new["pieces"], **old["pieces"]}, "added": [*old.get("added", []), now]}


def tokenizer_facts(recording: Recording, world: Environment) -> dict:
    """Of the tokens that occur, the control tokens, the digits, and the text of each."""
    seen = {*recording.tokens, *recording.row_stats.ids[:, :8].flatten().tolist()}
    seen |= {token for lengths in recording.drafts.values() for drafts in lengths.values() for draft in drafts
             for token in draft.tokens}
    for kept in (kept for lengths in recording.lattices.values() for kept in lengths.values()):
        seen.update(torch.stack([lattice.ids for lattice in kept]).unique().tolist())
    return {"control": sorted(world.facts.control & seen), "digit": sorted(world.facts.digit & seen),
            "pieces": {str(token): world.name(token) for token in sorted(seen)}}
