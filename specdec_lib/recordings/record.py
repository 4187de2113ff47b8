"""Recording: one greedy decode of a prompt, and every drafter's proposals from each of its prefixes.

What is kept of a drafter is described in `drafts.py`. A recording can be given further drafters later: the target has
to generate the same text again, and nothing that was recorded before changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.loop import begin
from specdec_lib.models.replay import Recording
from specdec_lib.recordings.drafts import record_drafts, with_drafts
from specdec_lib.scores import RowStats
from specdec_lib.types import Budget, Draft, Refusal, Session

LENGTHS = (4, 8, 16)
TOP = 64
NODES = 8                                          # of drafters that are recorded on their own run
TREES = {"eagle2": Budget(6, 4, 16)}               # drafters that grow trees: the largest that can be replayed
Say = Callable[[str], None]


def record(prompt: Sequence[int], kit: Kit, drafters: Sequence[str] | Mapping[str, str], max_new_tokens: int = 128,
           lengths: Sequence[int] = LENGTHS, about: dict | None = None, trees: Mapping[str, Budget] = TREES,
           say: Say = lambda line: None) -> Recording:
    """Decodes `prompt` plainly with the kit's target and records each drafter named; `about` goes into the header.

    `drafters` are parts, or a mapping from names to parts.
    A drafter that `trees` names is recorded at that size, once; chains and lattices at each of `lengths`.
    """
    say("plain decoding")
    session, row_stats = record_plain(prompt, kit, max_new_tokens)
    nothing = Recording(session.tokens, session.prompt, row_stats, {}, {}, about or {})
    return with_drafters(nothing, session, kit, drafters, lengths, trees, say)


def extended(recording: Recording, prompt: Sequence[int], kit: Kit, drafters: Sequence[str] | Mapping[str, str],
             lengths: Sequence[int] = LENGTHS, trees: Mapping[str, Budget] = TREES,
             say: Say = lambda line: None) -> Recording:
    """The recording with these drafters added; its own stay as they are.

    Refusal where the kit's target does not answer `prompt` with the recorded text, token for token.
    """
    say("plain decoding, to compare")
    session, _ = record_plain(prompt, kit, len(recording.output))
    if session.tokens != recording.tokens:
        pairs = enumerate(zip_longest(session.tokens, recording.tokens), 1)
        place = next(i for i, (mine, its) in pairs if mine != its)
        raise Refusal(f"the text differs from the recorded one at token {place}, so no drafter can be added:"
                      " use the prompts, the target and the dtype that it was recorded with")
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
    """The greedy output, and the top 64 of each of its rows."""
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


def drafter_names(drafters: Sequence[str]) -> dict[str, str]:
    """Name -> part to record, from words NAME=PART, or PART under its own name."""
    parts = {}
    for word in drafters:
        name, _, part = word.partition("=")
        if name in parts:
            raise Refusal(f"two drafters would be recorded as {name}: give one of them another name, NAME=PART")
        parts[name] = catalog.part_card(part or name).name
        if parts[name] not in catalog.parts()["what"]:
            raise Refusal(f"{parts[name]} is no drafter; there are: {', '.join(catalog.parts()['what'])}")
        if not name or "/" in name:
            raise Refusal(f"{word!r} has no name that a recording can store: write NAME=PART")
    return parts
