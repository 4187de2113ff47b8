"""Recording: one greedy decode of a prompt, and every drafter's proposals from each of its prefixes.

What is kept of a drafter is told in `proposals.py`. A recording that is there already can be given further drafters:
the target has to say the same text again, and nothing that was recorded before is touched. `NAME=PART` records a part
under a name of its own, such as `draft-lm=draft-model` beside an untrained draft model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from specdec_lib import catalog
from specdec_lib.bench import provenance
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.prompts import Prompt
from specdec_lib.loop import begin
from specdec_lib.models.replay import Recording, load_recording, save_recording
from specdec_lib.recordings.drafts import record_drafts, with_drafts
from specdec_lib.scores import RowStats
from specdec_lib.types import Budget, Draft, Kit, Refusal, Session

LENGTHS = (4, 8, 16)
TOP = 64
NODES = 8                                          # of drafters that are recorded on their own run
TREES = {"eagle2": Budget(6, 4, 16)}               # drafters that grow trees: the largest that can be replayed
DRAFTERS = ("prompt-lookup", "suffix-automaton", "token-recycling", "draft-model")
Say = Callable[[str], None]


def record_all(prompts: Sequence[Prompt], world: Environment, out: Path, drafters: Sequence[str] = DRAFTERS,
               max_new_tokens: int = 128, say: Say = lambda line: None, add: bool = False) -> list[Path]:
    """One file per prompt, named by its family, of the first turn.

    Files that are there already stay as they are, or with `add` are given those of `drafters` that they lack.
    """
    parts = drafter_names(drafters)
    out.mkdir(parents=True, exist_ok=True)
    paths, source = [], provenance.provenance()    # taken before files change that the project tracks
    for prompt in prompts:
        taken = [other.family for other in prompts].count(prompt.family) > 1
        path = out / f"{prompt.family}{f'-{prompt.question_id}' if taken else ''}.safetensors"
        paths.append(path)
        old = load_recording(path) if add and path.exists() else None
        lacking = {name: part for name, part in parts.items() if old is None or name not in old.drafts}
        if path.exists() and (old is None or not lacking):
            say(f"{path.name} is there already and stays" if old is None else f"{path.name} has these drafters already")
            continue
        kit = Kit(world.target.fresh(), world.facts, nodes=NODES, draft=world.draft,
                  checkpoints=world.checkpoints, parts=catalog.make_part)
        tell = lambda line: say(f"{path.stem}: {line}")      # noqa: B023, E731
        ids = world.encode([("user", prompt.turns[0])])
        if old is None:
            recording = record(ids, kit, lacking, max_new_tokens, say=tell)
            save_recording(replace(recording, about=describe(recording, prompt, world, source)), path)
        else:
            recording = extended(old, ids, kit, lacking, say=tell)
            save_recording(replace(recording, about=describe_added(recording, lacking, world, source)), path)
    return paths


def describe(recording: Recording, prompt: Prompt, world: Environment, source: dict) -> dict:
    """What a reader wants to know of a recording, and the text of every token that occurs in it."""
    return {"family": prompt.family, "question_id": prompt.question_id, "text": prompt.turns[0],
            "target": dict(world.about), "vocab": world.facts.vocab, "end": sorted(world.facts.end),
            **tokenizer_facts(recording, world), "provenance": source}


def describe_added(recording: Recording, drafters: Mapping[str, str], world: Environment, source: dict) -> dict:
    """The same of a recording that was given drafters: where they come from stands beside where the rest does."""
    old = recording.about
    words = [name if name == part else f"{name}={part}" for name, part in drafters.items()]
    now = {"drafters": words, "target": dict(world.about), "provenance": source}
    new = tokenizer_facts(recording, world)
    return {**old, **new, "pieces": {**new["pieces"], **old["pieces"]}, "added": [*old.get("added", []), now]}


def tokenizer_facts(recording: Recording, world: Environment) -> dict:
    """What the tokenizer says of the tokens that occur: control tokens, digits, and the text of each."""
    seen = {*recording.tokens, *recording.row_stats.ids[:, :8].flatten().tolist()}
    seen |= {token for lengths in recording.drafts.values() for drafts in lengths.values() for draft in drafts
             for token in draft.tokens}
    for kept in (kept for lengths in recording.lattices.values() for kept in lengths.values()):
        seen.update(torch.stack([lattice.ids for lattice in kept]).unique().tolist())
    return {"control": sorted(world.facts.control & seen), "digit": sorted(world.facts.digit & seen),
            "pieces": {str(token): world.name(token) for token in sorted(seen)}}


def drafter_names(drafters: Sequence[str]) -> dict[str, str]:
    """What is recorded, by the name it gets: of each word NAME=PART, or PART under its own name."""
    parts = {}
    for word in drafters:
        name, _, part = word.partition("=")
        parts[name] = catalog.part_card(part or name).name
        if not name or "/" in name:
            raise Refusal(f"{word!r} gives a recorded drafter no name that a file can hold: write NAME=PART")
    return parts


def record(prompt: Sequence[int], kit: Kit, drafters: Sequence[str] | Mapping[str, str], max_new_tokens: int = 128,
           lengths: Sequence[int] = LENGTHS, about: dict | None = None, trees: Mapping[str, Budget] = TREES,
           say: Say = lambda line: None) -> Recording:
    """Decodes `prompt` plainly with the kit's target and records each drafter named; `about` goes into the header.

    `drafters` are parts, or parts by the names that they get.
    A drafter that `trees` names is recorded at that size, once; chains and lattices at each of `lengths`.
    """
    say("plain decoding")
    session, row_stats = record_plain(prompt, kit, max_new_tokens)
    nothing = Recording(session.tokens, session.prompt, row_stats, {}, {}, about or {})
    return with_drafters(nothing, session, kit, drafters, lengths, trees, say)


def extended(recording: Recording, prompt: Sequence[int], kit: Kit, drafters: Sequence[str] | Mapping[str, str],
             lengths: Sequence[int] = LENGTHS, trees: Mapping[str, Budget] = TREES,
             say: Say = lambda line: None) -> Recording:
    """The recording with these drafters beside its own, which stay as they are.

    Refusal where the kit's target does not answer `prompt` with the recorded text, token for token.
    """
    say("plain decoding, to compare")
    session, _ = record_plain(prompt, kit, len(recording.output))
    if session.tokens != recording.tokens:
        pairs = enumerate(zip(session.tokens, recording.tokens, strict=False), 1)
        place = next((i for i, (mine, its) in pairs if mine != its), min(len(session.tokens), len(recording.tokens)))
        raise Refusal(f"here the text is another than the recorded one at token {place}, so no drafter can be added:"
                      " take the prompts, the target and the dtype that it was recorded with")
    return with_drafters(recording, session, kit, drafters, lengths, trees, say)


def with_drafters(recording: Recording, session: Session, kit: Kit,
                  drafters: Sequence[str] | Mapping[str, str], lengths: Sequence[int], trees: Mapping[str, Budget],
                  say: Say) -> Recording:
    """The recording and what each of these drafters proposes along the session's text."""
    found = {}
    for name, part in (drafters if isinstance(drafters, Mapping) else drafter_names(drafters)).items():
        say(name)
        found[name] = record_drafts(part, session, kit, lengths, trees)
    return with_drafts(recording, found)


def record_plain(prompt: Sequence[int], kit: Kit, max_new_tokens: int) -> tuple[Session, RowStats]:
    """The greedy output, and the top 64 of each row that it was read from."""
    target = kit.target.fresh()
    session = begin(prompt, max_new_tokens, kit.facts.end, context=target.context)
    target.prefill(session.tokens[:-1])
    rows: list[RowStats] = []
    while not session.done:
        rows.append(target(session.tokens, Draft()).row_stats((0,), TOP))
        token = int(rows[-1].ids[0, 0])
        session = replace(session, tokens=(*session.tokens, token), remaining=session.remaining - 1)
    return session, RowStats(torch.cat([row.ids for row in rows]), torch.cat([row.logits for row in rows]).float(),
                             tuple(range(len(rows))), tuple(row.lse[0] for row in rows),
                             tuple(row.entropy[0] for row in rows))
