"""The simulated pipeline: spans by hand, the closed form of what it counts, and what bounds it."""

import random

import pytest

from specdec_lib.analysis.pipeline_time import StageSpan, expected_parts, simulate_pipeline, speed_up, stages_of
from specdec_lib.types import Refusal


def test_the_layers_above_the_exit_are_shared_evenly():
    assert stages_of(30, 10, 2) == (10, 20)
    assert stages_of(30, 5, 6) == (5, 5, 5, 5, 5, 5)
    assert stages_of(30, 8, 4) == (8, 8, 7, 7)


@pytest.mark.parametrize(("exit", "workers"), [(0, 2), (4, 2), (1, 1), (2, 4)])
def test_stages_without_layers_are_refused(exit, workers):
    with pytest.raises(Refusal, match="layers below and above"):
        stages_of(4, exit, workers)


def test_by_hand_one_right_draw_and_one_wrong_one():
    found = simulate_pipeline([True, False], (1, 2), ahead=1)
    assert [span for span in found.spans if span.wanted] == [
        StageSpan(0, 0, 0, 1, True), StageSpan(1, 0, 1, 3, True),        # the first token
        StageSpan(0, 1, 1, 2, True), StageSpan(1, 1, 3, 5, True),        # drawn right: in stage 0 at once
        StageSpan(0, 2, 5, 6, True), StageSpan(1, 2, 6, 8, True)]        # drawn wrong: after all layers of token 1
    # the wrong token 2 enters when token 0 has left the last stage, as `ahead` says, and is cancelled at 5
    assert [span for span in found.spans if not span.wanted] == [StageSpan(0, 2, 3, 4, False)]
    assert found.ready == (3, 5, 8)


def test_a_wrong_token_is_cancelled_in_the_middle_of_a_stage():
    spans = simulate_pipeline([False], (3, 2, 2), ahead=2).spans
    assert [span for span in spans if not span.wanted] == [
        StageSpan(0, 1, 3, 6, False), StageSpan(1, 1, 6, 7, False), StageSpan(0, 2, 6, 7, False)]


@pytest.mark.parametrize("stages", [(5, 5, 5, 5, 5, 5), (10, 20), (15, 15), (5, 25), (20, 10), (10, 10, 10), (7, 6, 4)])
@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.9, 1.0])
def test_what_the_simulation_counts_is_the_closed_form_of_the_share_that_was_right(alpha, stages):
    dice = random.Random(3)
    right = [dice.random() < alpha for _ in range(300)]
    share, layers = sum(right) / len(right), sum(stages)
    assert layers / simulate_pipeline(right, stages).per_token == pytest.approx(speed_up(share, stages))


def test_equal_stages_give_the_papers_form_and_a_longer_one_bounds_the_speed():
    assert speed_up(0.8056, (8, 8, 8, 8)) == pytest.approx(32 / (0.8056 * 8 + 0.1944 * 32))
    assert speed_up(1.0, (5, 25)) == pytest.approx(30 / 25)
    assert speed_up(0.0, (5, 25)) == 1.0


def test_a_token_passes_the_last_stage_and_the_rest_of_its_time_is_waiting():
    assert expected_parts(.5, (15, 15)) == pytest.approx((.5, .25))   # .75 forwards a token, .5 of them above
    assert expected_parts(1.0, (5, 5, 5)) == pytest.approx((1 / 3, 0))
    assert expected_parts(1.0, (20, 10)) == pytest.approx((1 / 3, 1 / 3))


def test_no_stage_holds_two_tokens_and_no_token_is_in_two_stages():
    dice = random.Random(5)
    found = simulate_pipeline([dice.random() < 0.5 for _ in range(80)], (4, 5, 3, 6), ahead=3)
    for key in ("stage", "token"):
        groups: dict = {}
        for span in found.spans:
            groups.setdefault((getattr(span, key), span.wanted if key == "token" else None), []).append(span)
        for (_, wanted), spans in groups.items():
            ordered = sorted(spans, key=lambda span: span.start)
            if key == "stage" or wanted:
                assert all(one.end <= two.start for one, two in zip(ordered, ordered[1:], strict=False))


def test_without_tokens_ahead_it_is_decoding_in_turn():
    assert simulate_pipeline([True] * 9, (2, 4), ahead=0).per_token == 6
    assert not [span for span in simulate_pipeline([False] * 9, (2, 4), ahead=0).spans if not span.wanted]
