"""The method specdiff: plain decoding's output when greedy, one drafter forward per step, a ratio test for the last."""

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.loop import decode
from specdec_lib.types import NO_DICE
from tests.worlds import PROMPT, WARM, network_kit, run


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_greedy_it_equals_the_plain_diffusion_draft_with_as_many_steps(steps):
    drafts = []
    for name in ("specdiff", "diffusion-draft"):
        kit = network_kit(None)
        *_, last = decode(PROMPT, kit.target, *catalog.build(f"{name}(depth=5, steps={steps})", kit), max_new_tokens=30)
        assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target)
        drafts.append([round.draft.tokens for round in last.rounds])
    assert drafts[0] == drafts[1]


def test_sampling_a_round_costs_one_target_forward_and_one_drafter_forward_per_step():
    kit = network_kit(WARM)
    method = catalog.build("specdiff(depth=6, steps=3)", kit)
    *_, last = decode(PROMPT, kit.target, *method, max_new_tokens=20, sampling=WARM, dice=Dice(1))
    drafted = [round for round in last.rounds if len(round.draft)]
    assert kit.target.forwards == 1 + len(last.rounds)
    assert len(drafted) <= method.what.head.forwards <= 3 * len(drafted)


def test_its_window_reaches_the_network():
    assert catalog.build("specdiff(window=16)", network_kit()).what.head.window == 16
