"""DDTree: plain decoding's output, one forward of each model a round, and no round accepts less than the chain."""

import pytest

from specdec_lib import catalog
from specdec_lib.loop import begin, decode
from specdec_lib.trees import accepted_depth
from specdec_lib.types import NO_DICE, Budget
from tests.worlds import PROMPT, network_kit, run

KNOWN_NEXT = (0, 0, 2)                             # after it the target's token is in the drafters' vocabulary
ZEROS_NEXT = (0, 2, 0)                             # after it as well, and the best chain is often wrong


@pytest.mark.parametrize("spec", ["ddtree", "ddtree(nodes=7)", "ddtree(nodes=7, linked=False)",
                                  "ddtree(nodes=7, drafter='diffusion-lm')", "ddtree(nodes=2, width=1, price=0)"])
@pytest.mark.parametrize("prompt", [PROMPT, (1,), KNOWN_NEXT], ids=str)
def test_the_output_is_plain_decodings_and_a_round_costs_one_forward_of_each(spec, prompt):
    kit = network_kit(None)
    method = catalog.build(spec, kit)
    *_, last = decode(prompt, kit.target, *method, max_new_tokens=30)
    assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target, prompt)
    assert kit.target.forwards == (len(prompt) > 1) + len(last.rounds)
    assert method.what.drafter.head.forwards >= sum(len(round.draft) > 0 for round in last.rounds)
    assert "width=1" in spec or any(len(round.draft) > round.draft.depth for round in last.rounds)


def test_every_round_accepts_at_least_as_much_as_the_chain_that_its_tree_holds():
    kit = network_kit(None)
    method = catalog.build("ddtree(depth=3, nodes=14, price=0)", kit)
    sessions = list(decode(ZEROS_NEXT, kit.target, *method, max_new_tokens=30))
    more = 0
    for before, after in zip([begin(ZEROS_NEXT, 30), *sessions], sessions, strict=False):
        emitted = after.tokens[len(before.tokens):]
        chain = network_kit(None).part("block-diffusion")(before, Budget(3).within(before), NO_DICE)
        accepted = len(after.rounds[-1].verdict.path)
        assert accepted >= min(accepted_depth(chain, emitted), len(emitted) - 1)
        more += accepted > accepted_depth(chain, emitted)
    assert more


def test_its_nodes_are_twice_those_of_the_cost_curve_unless_given():
    assert catalog.build("ddtree", network_kit()).when.nodes == 6
    assert catalog.build("ddtree(nodes=9)", network_kit()).when.nodes == 9
