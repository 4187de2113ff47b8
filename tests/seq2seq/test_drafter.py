"""The drafter at work: its cached block is the one that training computes."""

import pytest
import torch

from specdec_lib.seq2seq.alphabet import BEGIN, source_ids
from specdec_lib.seq2seq.drafter import BlockDrafter
from specdec_lib.seq2seq.stored import drafter_from
from specdec_lib.seq2seq.verifier import Verifier
from specdec_lib.training.losses.masked_block import fill
from specdec_lib.types import Refusal
from tests.seq2seq.worlds import SOURCE, drafter_checkpoint, network

NET, DRAFTER = network(), drafter_from(drafter_checkpoint()).double()
TOKENS = (BEGIN, 10, 21, 9, 30)


def in_training(tokens: tuple[int, ...], size: int, source=SOURCE) -> torch.Tensor:
    """The block as the loss computes it, from an output that goes on behind the prefix."""
    encoded, mask = NET.encoder.run(torch.tensor([source]))
    inputs = torch.tensor([tokens + (33, 34)])
    return fill(DRAFTER, DRAFTER.memory(encoded, mask), inputs, torch.tensor([len(tokens) - 1]), size)[0]


@pytest.mark.parametrize("size", [1, 5, 25])
def test_a_block_is_what_the_training_computes_whatever_was_drafted_before(size):
    head = BlockDrafter(DRAFTER, Verifier(NET, SOURCE))
    with torch.inference_mode():
        for tokens in ((BEGIN,), TOKENS, TOKENS[:3], (BEGIN, 10, 22, 9), TOKENS):
            assert torch.allclose(head.logits(SOURCE, tokens, size), in_training(tokens, size), atol=1e-10)
        known = head.memory
        assert head.bind(SOURCE) or head.memory is known is not None
        other = source_ids("tomato")
        assert torch.allclose(head.logits(other, TOKENS, size), in_training(TOKENS, size, other), atol=1e-10)


def test_a_drafter_of_another_width_is_refused():
    net = network()
    net.sizes = type(net.sizes)(width=32)
    with pytest.raises(Refusal, match="trained for another model"):
        BlockDrafter(DRAFTER, Verifier(net, SOURCE))
