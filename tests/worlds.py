"""Tiny worlds in which every law is known exactly."""

from __future__ import annotations

import itertools

import torch

from specdec_lib import catalog
from specdec_lib.loop import decode
from specdec_lib.models.table import Table
from specdec_lib.sampling import Sampling
from specdec_lib.types import Facts, Kit, Method, Scores

PROMPT = (0, 1, 2, 0, 1)
WARM = Sampling(temperature=1.0)
TARGET = Table({(): (.5, .3, .2), (0,): (.2, .5, .3), (1,): (.1, .3, .6), (0, 1): (.25, .15, .6), (2,): (.7, .1, .2),
                (1, 2): (.55, .25, .2)})
DRAFT = Table({(): (.3, .3, .4), (0,): (.5, .2, .3), (1,): (.3, .3, .4), (2,): (.2, .6, .2)})


def kit(sampling=WARM, nodes: int = 3, **more) -> Kit:
    """A kit of the table world."""
    facts = Facts(vocab=3)
    return Kit(TARGET, facts, sampling, nodes=nodes, draft=DRAFT, parts=catalog.make_part, **more)


def run(method: Method, dice, sampling=WARM, tokens: int = 3, target=TARGET, prompt=PROMPT) -> tuple[int, ...]:
    """The output of one decode."""
    for session in decode(prompt, target, *method, max_new_tokens=tokens, sampling=sampling, dice=dice):
        pass
    return session.output


def true_law(target=TARGET, prompt=PROMPT, tokens: int = 3) -> dict[tuple[int, ...], float]:
    """The target's own law over outputs, multiplied out."""
    law = {}
    for output in itertools.product(range(target.vocab), repeat=tokens):
        chance = 1.0
        for i, token in enumerate(output):
            chance *= float(target.logits(prompt + output[:i]).exp()[token])
        law[output] = chance
    return law


class Scripted:
    """A target that always says the same text: greedy decoding of it emits `script` after the prompt."""

    context = None

    def __init__(self, prompt: tuple[int, ...], script: tuple[int, ...], vocab: int = 32):
        self.text, self.vocab, self.forwards = tuple(prompt) + tuple(script), vocab, 0

    def fresh(self):
        return self

    def prefill(self, tokens):
        self.prefilled = len(tokens)

    def __call__(self, tokens, draft):
        self.forwards += 1
        lengths = [len(tokens)] + [len(tokens) + depth for depth in draft.depths]
        logits = torch.zeros(len(lengths), self.vocab)
        for row, length in enumerate(lengths):
            if length < len(self.text):
                logits[row, self.text[length]] = 5.0
        return Scores(logits)

    def features(self, tokens):
        return torch.tensor(tokens, dtype=torch.float32)[:, None, None]     # [len, taps, hidden]: the token itself
