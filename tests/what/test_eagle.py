"""EAGLE drafts a chain from its head."""

from specdec_lib import catalog
from specdec_lib.loop import begin, decode
from specdec_lib.types import NO_DICE, Budget
from tests.worlds import PROMPT, network_kit, run


def test_it_drafts_the_heads_best_tokens_one_after_the_other():
    part = network_kit(None).part("eagle")
    draft = part(begin(PROMPT, 9), Budget(3), NO_DICE)
    other = network_kit(None).part("eagle").head
    best = tuple(other(PROMPT, draft.keep(tuple(range(nodes)))).best[nodes] for nodes in range(3))
    assert draft.tokens == best
    assert draft.source == ("eagle",) * 3
    assert part.head.forwards == 3


def test_only_tokens_of_its_vocabulary_are_drafted():
    part = network_kit(None).part("eagle")
    tokens = {token for a in range(3) for b in range(3)
              for token in part(begin((a, b), 9), Budget(3), NO_DICE).tokens}
    assert tokens <= {0, 2}


def test_after_a_prompt_of_one_token_the_draft_is_empty():
    assert len(network_kit(None).part("eagle")(begin((1,), 9), Budget(3), NO_DICE)) == 0


def test_drafting_costs_no_target_forward():
    kit = network_kit(None)
    method = catalog.build("eagle", kit)
    *_, last = decode(PROMPT, kit.target, *method, max_new_tokens=30)
    assert kit.target.forwards == 1 + len(last.rounds)                 # the prompt, then one a round
    assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target)

