"""The method block-diffusion: plain decoding's output, no extra target forward, drafts cut by the cost curve."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.loop import decode
from specdec_lib.types import NO_DICE, Refusal
from tests.worlds import PROMPT, network_kit, run


def test_its_output_is_plain_decodings_and_drafting_costs_no_target_forward():
    kit = network_kit(None)
    *_, last = decode(PROMPT, kit.target, *catalog.build("block-diffusion", kit), max_new_tokens=30)
    assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target)
    assert kit.target.forwards == 1 + len(last.rounds)                 # the prompt, then one per round


def test_its_depth_comes_from_the_cost_curve_unless_given():
    assert catalog.build("block-diffusion", network_kit()).when.depth == 3
    assert catalog.build("block-diffusion(depth=2)", network_kit()).when.depth == 2


def test_a_draft_is_cut_by_the_cost_curve_and_never_without_one():
    def lengths(spec, cost):
        kit = replace(network_kit(None), cost=cost)
        *_, last = decode(PROMPT, kit.target, *catalog.build(spec, kit), max_new_tokens=20)
        return {len(round.draft) for round in last.rounds[:4]}

    def proportional(width, context):
        return float(width)

    assert lengths("block-diffusion", None) == {3} == lengths("block-diffusion(cut=False)", proportional)
    assert lengths("block-diffusion", lambda width, context: 1.0) == {3}
    assert lengths("block-diffusion(drafting=0)", proportional) == {0}


def test_a_missing_checkpoint_is_refused_with_the_training_command():
    kit = network_kit()
    bare = Kit(kit.target, checkpoints={}, parts=catalog.make_part)
    with pytest.raises(Refusal, match="specdec train block-diffusion"):
        catalog.build("block-diffusion", bare)
