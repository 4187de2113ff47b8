"""DiffuSpec assembled: plain decoding's output, one forward of each model per round, its two halves separately."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.loop import decode
from specdec_lib.types import NO_DICE, Refusal
from tests.worlds import PROMPT, network_kit, run

SPECS = ["diffuspec", "diffuspec(depth=5)", "diffuspec(weight=1.0)", "diffuspec(drafter='block-diffusion')",
         "diffuspec(rule='printed', shortest=4, longest=6, growth=2, score='sum')", "diffuspec(block=6)"]
KNOWN_NEXT = (0, 0, 2)                             # after it the target's token is in the drafters' vocabulary


def decoded(spec: str, prompt=PROMPT, kit=None, tokens: int = 30):
    kit = network_kit(None) if kit is None else kit
    method = catalog.build(spec, kit)
    *_, last = decode(prompt, kit.target, *method, max_new_tokens=tokens)
    return last, kit, method


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("prompt", [(1,), KNOWN_NEXT], ids=str)
def test_the_output_is_plain_decodings_and_a_round_costs_one_forward_of_each(spec, prompt):
    last, kit, method = decoded(spec, prompt)
    assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target, prompt)
    assert kit.target.forwards == (len(prompt) > 1) + len(last.rounds)
    assert method.what.drafter.head.forwards == sum(len(round.draft) > 0 for round in last.rounds)


def test_the_controller_uses_the_raw_drafts_length_and_depth_fixes_it():
    last, _, method = decoded("diffuspec(rule='printed', shortest=4, longest=6, growth=2)", tokens=60)
    depths = [round.budget.depth for round in last.rounds[:-6]]
    assert depths[0] == 6
    assert set(depths[1:]) == {4}
    assert all(round.draft.notes["generated"] == round.budget.depth for round in last.rounds if len(round.draft))
    fixed, *_ = decoded("diffuspec(depth=5)", tokens=60)
    assert {round.budget.depth for round in fixed.rounds[:-6]} == {5}


def test_without_the_search_it_drafts_the_best_token_of_every_slot():
    plain, *_ = decoded("diffusion-draft(depth=5)")
    bare, *_ = decoded("diffuspec(depth=5, weight=1.0, block=5)")
    assert [round.draft.tokens for round in bare.rounds] == [round.draft.tokens for round in plain.rounds]
    searched, *_ = decoded("diffuspec(depth=5, weight=0.0, mass=1.0, block=5)")
    assert searched.rounds[0].draft.tokens != bare.rounds[0].draft.tokens


def test_a_missing_drafter_is_refused_and_a_missing_trigram_is_noted():
    with pytest.raises(Refusal, match="specdec train diffusion-lm`"):
        catalog.build("diffuspec", replace(network_kit(), checkpoints={}))
    kit = network_kit(None)
    del kit.checkpoints["ngram"]
    last, *_ = decoded("diffuspec", kit=kit)
    assert last.output == decoded("ar")[0].output
    assert "specdec train ngram" in last.rounds[0].draft.notes["alone"]
