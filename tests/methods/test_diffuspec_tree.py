"""DiffuSpec with a tree: plain decoding's text, and no round accepts less than the best path alone would."""

import pytest

from specdec_lib import catalog
from specdec_lib.loop import begin, decode
from specdec_lib.types import NO_DICE, Budget
from tests.worlds import PROMPT, network_kit, run

SAYS_TWO = (0, 0, 2)                               # after it the target says a token that the drafters know


def decoded(spec: str, prompt=SAYS_TWO):
    kit = network_kit(None)
    method = catalog.build(spec, kit)
    return list(decode(prompt, kit.target, *method, max_new_tokens=30)), kit, method


@pytest.mark.parametrize("spec", ["diffuspec-tree", "diffuspec-tree(nodes=9)", "diffuspec-tree(depth=3, nodes=7)",
                                  "diffuspec-tree(nodes=9, drafter='block-diffusion')"])
@pytest.mark.parametrize("prompt", [PROMPT, (1,), SAYS_TWO], ids=str)
def test_the_output_is_plain_decodings_and_a_round_costs_one_forward_of_each(spec, prompt):
    (*_, last), kit, method = decoded(spec, prompt)
    assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target, prompt)
    assert kit.target.forwards == (len(prompt) > 1) + len(last.rounds)
    assert method.what.drafter.head.forwards == sum(len(round.draft) > 0 for round in last.rounds)
    assert any(len(round.draft) > round.draft.depth for round in last.rounds), "no round drafted a tree"


def test_every_round_accepts_at_least_what_the_best_path_alone_would():
    sessions, *_ = decoded("diffuspec-tree(depth=4, nodes=9, mass=1.0)")
    more = 0
    for before, after in zip([begin(SAYS_TWO, 30), *sessions], sessions, strict=False):
        came = after.tokens[len(before.tokens):]
        room = Budget(4).within(before)
        best = network_kit(None).part("path-search", mass=1.0)(before, room, NO_DICE).tokens
        alone = next((i for i, (a, b) in enumerate(zip(best, came, strict=False)) if a != b), min(len(best), len(came)))
        assert len(after.rounds[-1].verdict.path) >= min(alone, len(came) - 1)
        more += len(after.rounds[-1].verdict.path) > alone
    assert more


def test_the_longest_path_leaves_nodes_for_others_unless_told_otherwise():
    method = catalog.build("diffuspec-tree(nodes=9)", network_kit(None))
    assert method.when.longest == 6
    assert method.when.width == 3
    assert method.when.nodes == 9
    assert catalog.build("diffuspec-tree(nodes=9, longest=9)", network_kit(None)).when.longest == 9
