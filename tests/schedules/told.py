"""A first stage that draws what it is told, over a random network, and what that network writes."""

from dataclasses import dataclass, replace

import torch

from specdec_lib import catalog
from specdec_lib.loop import decode
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.stages import leaving_states
from specdec_lib.schedules.pipeline import STATES, FirstStage
from specdec_lib.trees import deterministic_chain, with_notes
from specdec_lib.types import up_to_end
from tests.worlds import PROMPT, SHAPE, network_kit

WORLD = network_kit()
FOUR = replace(SHAPE, layers=4, vocab=32)
TARGET = Transformer.random(FOUR, seed=2, dtype=torch.float64)
LAYER = 2


@dataclass(frozen=True)
class Told(FirstStage):
    """Draws `script`, a token for each position of the output; its hidden states are the network's own."""

    script: tuple[int, ...] = ()

    def __call__(self, session, budget, dice):
        place, known = len(session.tokens) - len(PROMPT), len(session.tokens) - 1
        tokens = up_to_end(self.script[place:place + budget.depth], session.end)
        ASKED.append((len(session.tokens), budget.depth))
        self.model.prefill(session.tokens + tokens[:-1])
        states = leaving_states(self.model, known if known >= session.prompt else 0)
        return with_notes(deterministic_chain(tokens), **{STATES: states})


ASKED: list[tuple[int, int]] = []
*_, PLAINLY = decode(PROMPT, TARGET.fresh(), *catalog.build("ar", replace(WORLD, target=TARGET)), max_new_tokens=16)
TEXT = PLAINLY.output
