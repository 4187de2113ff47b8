"""The method block-diffusion says what plain decoding says, asks the target for nothing more, cuts by the curve."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.loop import decode
from specdec_lib.types import NO_DICE, Kit, Refusal
from tests.worlds import PROMPT, network_kit, run


def test_its_output_is_plain_decodings_and_its_drafts_cost_no_forward_of_the_target():
    kit = network_kit(None)
    *_, last = decode(PROMPT, kit.target, *catalog.build("block-diffusion", kit), max_new_tokens=30)
    assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target)
    assert kit.target.forwards == 1 + len(last.rounds)                 # the prompt, then one a round


def test_its_depth_is_the_cost_curves_unless_it_is_given():
    assert catalog.build("block-diffusion", network_kit()).when.depth == 3
    assert catalog.build("block-diffusion(depth=2)", network_kit()).when.depth == 2


def test_a_draft_is_cut_where_a_curve_says_so_and_never_without_one():
    def lengths(spec, cost):
        kit = replace(network_kit(None), cost=cost)
        *_, last = decode(PROMPT, kit.target, *catalog.build(spec, kit), max_new_tokens=20)
        return {len(round.draft) for round in last.rounds[:4]}

    def dear(width, context):
        return float(width)

    assert lengths("block-diffusion", None) == {3} == lengths("block-diffusion(cut=False)", dear)
    assert lengths("block-diffusion", lambda width, context: 1.0) == {3}
    assert lengths("block-diffusion(drafting=0)", dear) == {0}


def test_without_its_checkpoint_the_command_that_makes_it_is_named():
    kit = network_kit()
    bare = Kit(kit.target, checkpoints={}, parts=catalog.make_part)
    with pytest.raises(Refusal, match=r"block-diffusion is missing \(`specdec train block-diffusion` makes it\)"):
        catalog.build("block-diffusion", bare)
