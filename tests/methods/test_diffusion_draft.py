"""The method diffusion-draft: plain decoding's output, with one drafter forward per step and round."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.catalog import needed_checkpoints
from specdec_lib.loop import decode
from specdec_lib.types import NO_DICE, Refusal
from tests.worlds import PROMPT, network_kit, run


@pytest.mark.parametrize("spec", ["diffusion-draft", "diffusion-draft(depth=7)", "diffusion-draft(depth=5, steps=2)",
                                  "diffusion-draft(depth=3, window=16)", "diffusion-draft@confidence(threshold=0.6)"])
@pytest.mark.parametrize("prompt", [PROMPT, (1,)], ids=str)
def test_the_output_is_plain_decodings_and_a_round_costs_one_forward_per_step(spec, prompt):
    kit = network_kit(None)
    method = catalog.build(spec, kit)
    *_, last = decode(prompt, kit.target, *method, max_new_tokens=30)
    assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target, prompt)
    assert kit.target.forwards == (len(prompt) > 1) + len(last.rounds)
    drafted = [round for round in last.rounds if len(round.draft)]
    assert method.what.head.forwards == len(drafted) * (2 if "steps" in spec else 1)


def test_near_the_token_limit_the_draft_is_the_beginning_of_a_full_block():
    kit = network_kit(None)
    method = catalog.build("diffusion-draft(depth=6)", kit)
    *_, last = decode(PROMPT, kit.target, *method, max_new_tokens=9)
    short = next(round for round in last.rounds if 0 < len(round.draft) < 6)
    text = PROMPT
    for round in last.rounds:
        if round is short:
            break
        text += round.verdict.tokens
    best = network_kit(None).part("diffusion-lm").head.lattice(text, 6).ids[:, 0].tolist()
    assert short.draft.tokens == tuple(best[:len(short.draft)])


def test_the_named_checkpoint_is_among_those_that_a_run_needs():
    assert needed_checkpoints("diffusion-draft(depth=3)@confidence") == ["diffusion-lm"]
    spec = "diffusion-draft(weights='diffusion-lm-aligned')"
    assert needed_checkpoints(spec) == ["diffusion-lm", "diffusion-lm-aligned"]
    with pytest.raises(Refusal, match="specdec train diffusion-lm-aligned"):
        catalog.build(spec, network_kit())


def test_a_missing_checkpoint_is_refused_with_the_training_command():
    kit = replace(network_kit(), checkpoints={})
    assert catalog.missing(catalog.methods()["diffusion-draft"], kit) == ["diffusion-lm"]
    with pytest.raises(Refusal, match="specdec train diffusion-lm`"):
        catalog.build("diffusion-draft", kit)
