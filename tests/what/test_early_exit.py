"""Early exit drafts with the target's own first layers, whose rows verification goes on from."""

from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.loop import begin, decode
from specdec_lib.models.heads.exits import exit_heads
from specdec_lib.models.transformer import Transformer
from specdec_lib.models.weights import Layer
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal
from tests.worlds import PROMPT, SHAPE, network_kit, random_exits


def deeper_kit(layers=(1, 3)):
    """Four layers, exits after some of them."""
    shape = replace(SHAPE, layers=4)
    target = Transformer.random(shape, seed=2, dtype=torch.float64)
    return replace(network_kit(None), target=target, checkpoints={"early-exit": random_exits(shape, layers, (0, 2))})


@pytest.mark.parametrize("layer", [1, 3])
def test_it_drafts_what_the_model_cut_by_hand_would_say(layer):
    kit = deeper_kit()
    draft = kit.part("early-exit", layer=layer)(begin(PROMPT, 9), Budget(3), NO_DICE)
    cut = replace(kit.target.weights, layers=kit.target.weights.layers[:layer])
    head = exit_heads(kit.checkpoints["early-exit"].state, (layer,), kit.target.weights)[layer]
    text, alone = PROMPT, Transformer(cut)
    for token in draft.tokens:
        x = stream(alone, text)
        assert token == (0, 2)[int(head(x).argmax())]
        text += (token,)
    assert len(draft) == 3 and draft.source == ("early-exit",) * 3


def stream(cut: Transformer, text):
    """What leaves the last layer of the cut model after this text, before any norm."""
    lm = cut.fresh()
    lm.cache.align(text, Draft())
    return lm.run(len(text))[-1:]


class Counting:
    """A linear layer that counts the rows it was given."""

    def __init__(self, inner):
        self.inner, self.rows = inner, 0

    def __call__(self, x):
        self.rows += len(x)
        return self.inner(x)


def counted(kit):
    weights = kit.target.weights
    layers = tuple(Layer(Counting(w.qkv), w.out, w.gate_up, w.down) for w in weights.layers)
    return replace(kit, target=Transformer(replace(weights, layers=layers))), [layer.qkv for layer in layers]


def test_no_layer_is_fed_a_row_twice():
    kit, counters = counted(deeper_kit((2,)))
    *_, last = decode(PROMPT, kit.target, *catalog.build("early-exit", kit), max_new_tokens=20)
    drafted = sum(len(round.draft) for round in last.rounds)
    accepted = sum(len(round.verdict.path) for round in last.rounds)
    assert 0 < drafted > accepted
    rows = len(PROMPT) - 1 + len(last.rounds) + drafted                # the prompt, one true token a round, the nodes
    assert [counter.rows for counter in counters] == [rows] * 4


def test_the_lowest_trained_exit_is_the_default_and_others_are_refused():
    kit = deeper_kit((3, 1))
    assert kit.part("early-exit").model.depth == 1
    with pytest.raises(Refusal, match="after 1, 3"):
        kit.part("early-exit", layer=2)


def test_only_tokens_of_its_vocabulary_are_drafted():
    part = deeper_kit().part("early-exit")
    assert {token for a in range(3) for token in part(begin((a, 1), 9), Budget(4), NO_DICE).tokens} <= {0, 2}
