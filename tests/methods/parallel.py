"""Worlds for methods that draft while the target verifies: adversarial drafters, scripts, the shipped model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.hub import load as models
from specdec_lib.loop import decode
from specdec_lib.models.table import Table
from tests.worlds import TARGET, Scripted

# far from the target, without preference, and the target itself
ADVERSARIES = {"disjoint": Table({(): (.9, .05, .05), (0,): (.05, .05, .9), (1,): (.9, .05, .05),
                                  (2,): (.05, .9, .05)}),
               "uniform": Table({(): (1 / 3, 1 / 3, 1 / 3)}), "equal": TARGET}


def scripted_kit(text: tuple[int, ...], draft: tuple[int, ...], prompt: tuple[int, ...] = (1, 2)) -> Kit:
    """A greedy world: the target says `text` after the prompt, the drafter says `draft`."""
    return Kit(Scripted(prompt, text), TokenizerFacts(vocab=32), nodes=4, draft=Scripted(prompt, draft),
               parts=catalog.make_part)


def decode_script(spec: str, text: tuple[int, ...], draft: tuple[int, ...], tokens: int, prompt=(1, 2),
                  end=frozenset()):
    """The last session of a greedy decode in that world."""
    world = scripted_kit(text, draft, prompt)
    *_, session = decode(prompt, world.target, *catalog.build(spec, world), max_new_tokens=tokens, end=end)
    return session


def greedy_on_a_script(*specs: str) -> None:
    """Asserts that each method says the target's text with a right, a partly wrong and a wrong drafter."""
    text = (3, 4, 5, 3, 4, 6, 7, 8, 3, 4, 5, 3, 4, 6, 7, 8, 3, 4)
    partly = tuple(31 if place % 4 == 2 else token for place, token in enumerate(text))
    for spec in specs:
        for draft in (text, partly, (30,) * len(text)):
            for tokens in (1, 2, 3, 5, 8, len(text)):
                assert decode_script(spec, text, draft, tokens).output == text[:tokens], (spec, draft, tokens)
            assert decode_script(spec, text, draft, 18, end=frozenset({6})).output == text[:6], spec


@cache
def real_kit():
    """A function: the tokens that a method writes after one prompt, with the shipped model in float32, inline."""
    target, text = models.load("smollm2-135m", dtype=torch.float32)
    shelf = CheckpointFolder(SHIPPED, target, text)
    kit = Kit(target, text.facts, nodes=8, draft=draft_lm(shelf["draft-lm"].state, target.weights), checkpoints=shelf,
              parts=catalog.make_part)
    prompt = text.encode_chat(["Repeat this list twice: red, green, blue, red, green, blue."])

    @cache
    def written(spec: str, tokens: int) -> tuple[int, ...]:
        fresh = replace(kit, target=kit.target.fresh(), indexes={}, memory={})
        *_, session = decode(prompt, fresh.target, *catalog.build(spec, fresh), max_new_tokens=tokens,
                             end=kit.facts.end)
        return session.output

    return written
