"""DiffuSpec with a tree: plain decoding's output, and no round accepts less than the best path alone."""

import pytest

from specdec_lib import catalog
from specdec_lib.loop import begin, decode
from specdec_lib.types import NO_DICE, Budget
from tests.worlds import PROMPT, network_kit, run

KNOWN_NEXT = (0, 0, 2)                             # after it the target's token is in the drafters' vocabulary


def decoded(spec: str, prompt=KNOWN_NEXT):
    kit = network_kit(None)
    method = catalog.build(spec, kit)
    return list(decode(prompt, kit.target, *method, max_new_tokens=30)), kit, method


@pytest.mark.parametrize("spec", ["diffuspec-tree", "diffuspec-tree(nodes=9)", "diffuspec-tree(depth=3, nodes=7)",
                                  "diffuspec-tree(nodes=9, drafter='block-diffusion')"])
@pytest.mark.parametrize("prompt", [PROMPT, (1,), KNOWN_NEXT], ids=str)
def test_the_output_is_plain_decodings_and_a_round_costs_one_forward_of_each(spec, prompt):
    (*_, last), kit, method = decoded(spec, prompt)
    assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target, prompt)
    assert kit.target.forwards == (len(prompt) > 1) + len(last.rounds)
    assert method.what.drafter.head.forwards == sum(len(round.draft) > 0 for round in last.rounds)
    assert any(len(round.draft) > round.draft.depth for round in last.rounds), "no round drafted a tree"


def test_every_round_accepts_at_least_as_much_as_the_best_path_alone():
    sessions, *_ = decoded("diffuspec-tree(depth=4, nodes=9, mass=1.0)")
    more = 0
    for before, after in zip([begin(KNOWN_NEXT, 30), *sessions], sessions, strict=False):
        emitted = after.tokens[len(before.tokens):]
        budget = Budget(4).within(before)
        best = network_kit(None).part("path-search", mass=1.0)(before, budget, NO_DICE).tokens
        pairs = enumerate(zip(best, emitted, strict=False))
        alone = next((i for i, (a, b) in pairs if a != b), min(len(best), len(emitted)))
        assert len(after.rounds[-1].verdict.path) >= min(alone, len(emitted) - 1)
        more += len(after.rounds[-1].verdict.path) > alone
    assert more


def test_the_longest_path_is_two_thirds_of_the_nodes_unless_given():
    method = catalog.build("diffuspec-tree(nodes=9)", network_kit(None))
    assert method.when.longest == 6
    assert method.when.width == 3
    assert method.when.nodes == 9
    assert catalog.build("diffuspec-tree(nodes=9, longest=9)", network_kit(None)).when.longest == 9
