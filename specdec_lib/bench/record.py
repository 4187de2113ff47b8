"""Recording: one greedy decode of a prompt, and every drafter's proposal from each of its prefixes.

Drafters whose card says `off_path` (they learn from refused nodes) are recorded on their own run, at one length; the
prefixes that their run jumped over hold no draft. Those of `TREES` grow trees: a forest is kept of each, from which
every tree up to the size named there can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from specdec_lib import catalog
from specdec_lib.bench import provenance
from specdec_lib.bench.contenders import World
from specdec_lib.bench.forest import forest
from specdec_lib.bench.prompts import Prompt
from specdec_lib.loop import begin, decode
from specdec_lib.models.replay import Recording, save
from specdec_lib.types import NO_DICE, Brief, Budget, Draft, Kit, Session

LENGTHS = (4, 8, 16)
TOP = 64
NODES = 8                                          # of drafters that are recorded on their own run
TREES = {"eagle2": Budget(6, 4, 16)}               # drafters that grow trees: the largest that can be replayed
DRAFTERS = ("prompt-lookup", "suffix-automaton", "token-recycling", "draft-model")


def record_all(prompts: Sequence[Prompt], world: World, out: Path, drafters: Sequence[str] = DRAFTERS,
               max_new_tokens: int = 128, say: Callable[[str], None] = lambda line: None) -> list[Path]:
    """One file per prompt, named by its family, of the first turn; files that are there already stay."""
    for name in drafters:
        catalog.part_card(name)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for prompt in prompts:
        taken = [other.family for other in prompts].count(prompt.family) > 1
        path = out / f"{prompt.family}{f'-{prompt.question_id}' if taken else ''}.safetensors"
        paths.append(path)
        if path.exists():
            say(f"{path.name} is there already and stays")
            continue
        kit = Kit(world.target.fresh(), world.facts, nodes=NODES, draft=world.draft,
                  checkpoints=world.checkpoints, parts=catalog.make_part)
        recording = record(world.encode([("user", prompt.turns[0])]), kit, drafters, max_new_tokens,
                           say=lambda line: say(f"{path.stem}: {line}"))         # noqa: B023
        save(replace(recording, about=about(recording, prompt, world)), path)
    return paths


def about(recording: Recording, prompt: Prompt, world: World) -> dict:
    """What a reader wants to know of a recording, and the text of every token that occurs in it."""
    seen = {*recording.tokens, *recording.brief.ids[:, :8].flatten().tolist()}
    seen |= {token for lengths in recording.drafts.values() for drafts in lengths.values() for draft in drafts
             for token in draft.tokens}
    return {"family": prompt.family, "question_id": prompt.question_id, "text": prompt.turns[0],
            "target": dict(world.about), "vocab": world.facts.vocab, "end": sorted(world.facts.end),
            "control": sorted(world.facts.control & seen), "digit": sorted(world.facts.digit & seen),
            "pieces": {str(token): world.name(token) for token in sorted(seen)},
            "provenance": provenance.provenance()}


def record(prompt: Sequence[int], kit: Kit, drafters: Sequence[str], max_new_tokens: int = 128,
           lengths: Sequence[int] = LENGTHS, about: dict | None = None, trees: Mapping[str, Budget] = TREES,
           say: Callable[[str], None] = lambda line: None) -> Recording:
    """Decodes `prompt` plainly with the kit's target and records each drafter named; `about` goes into the header.

    A drafter that `trees` names is recorded at that size, once; chains are recorded at each of `lengths`.
    """
    say("plain decoding")
    session, brief = plain(prompt, kit, max_new_tokens)
    drafts: dict[str, dict[int, tuple[Draft, ...]]] = {}
    seconds: dict[str, dict[int, tuple[float, ...]]] = {}
    for name in drafters:
        say(name)
        if catalog.part_card(name).off_path:
            drafts[name], seconds[name] = own_run(name, session, kit)
        elif name in trees:
            drafts[name], seconds[name] = every_tree(name, session, kit, trees[name])
        else:
            drafts[name], seconds[name] = every_prefix(name, session, kit, lengths)
    return Recording(session.tokens, session.prompt, brief, drafts, seconds, about or {},
                     {name: trees[name] for name in drafts if name in trees})


def plain(prompt: Sequence[int], kit: Kit, max_new_tokens: int) -> tuple[Session, Brief]:
    """The greedy output, and the top 64 of each row that it was read from."""
    target = kit.target.fresh()
    session = begin(prompt, max_new_tokens, kit.facts.end, context=target.context)
    target.prefill(session.tokens[:-1])
    rows: list[Brief] = []
    while not session.done:
        rows.append(target(session.tokens, Draft()).brief((0,), TOP))
        token = int(rows[-1].ids[0, 0])
        session = replace(session, tokens=(*session.tokens, token), room=session.room - 1)
    return session, Brief(torch.cat([row.ids for row in rows]), torch.cat([row.logits for row in rows]).float(),
                          tuple(range(len(rows))), tuple(row.lse[0] for row in rows),
                          tuple(row.entropy[0] for row in rows))


def every_prefix(name: str, session: Session, kit: Kit, lengths: Sequence[int]):
    """The largest draft at each length from every committed prefix, each by a part that reads them in order."""
    drafts, seconds = {}, {}
    for length in lengths:
        part = catalog.make_part(name, replace(kit, indexes={}, target=kit.target.fresh()))
        kept, took = [], []
        for place in range(session.prompt, len(session.tokens)):
            here = replace(session, tokens=session.tokens[:place], room=length + 1)
            start = perf_counter()
            kept.append(part(here, Budget(length), NO_DICE).bare())
            took.append(perf_counter() - start)
        drafts[length], seconds[length] = tuple(kept), tuple(took)
    return drafts, seconds


def every_tree(name: str, session: Session, kit: Kit, largest: Budget):
    """The forest of every committed prefix, and the seconds of its largest tree; under the most nodes of a tree.

    Nodes cost nothing here, so that none is left out for its price: `recorded` can leave it out as well.
    """
    part = catalog.make_part(name, replace(kit, indexes={}, target=kit.target.fresh(), price=0.0))
    kept, took = [], []
    for place in range(session.prompt, len(session.tokens)):
        here, spent = replace(session, tokens=session.tokens[:place], room=largest.depth + 1), []

        def ask(budget: Budget, here=here, spent=spent) -> Draft:
            start = perf_counter()
            draft = part(here, budget, NO_DICE)
            spent.append(perf_counter() - start)
            return draft

        kept.append(forest(ask, largest))
        took.append(spent[0])
    return {largest.size: tuple(kept)}, {largest.size: tuple(took)}


def own_run(name: str, session: Session, kit: Kit):
    """The drafts of this drafter's own decode at the kit's node budget, by the prefix they were made for."""
    fresh = replace(kit, indexes={}, target=kit.target.fresh())
    method = catalog.build(name, fresh)
    empty = len(session.tokens) - session.prompt
    kept, took = [Draft()] * empty, [0.0] * empty
    place = 0
    for now in decode(session.tokens[:session.prompt], fresh.target, *method, end=kit.facts.end,
                      max_new_tokens=len(session.tokens) - session.prompt):
        round = now.rounds[-1]
        kept[place], took[place] = round.draft, round.seconds.what
        place += len(round.verdict.tokens)
    return {kit.nodes: tuple(kept)}, {kit.nodes: tuple(took)}
