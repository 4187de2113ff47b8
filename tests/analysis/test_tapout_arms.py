"""TapOut beside its arms in a run made up by hand."""

import pytest

from specdec_lib.analysis import length_policies, tapout_arms
from specdec_lib.analysis.length_policies import policy_result
from tests.bench.made_up import decodes, report, turn


@pytest.fixture(scope="module")
def run():
    return report(decodes("ar", *[turn(0, 0)] * 6), decodes("eagle(depth=2)", *[turn(2, 2, what=.5)] * 2),
                  decodes("eagle@svip", *[turn(2, 2, what=.25)] * 2),                 # 6 tokens in 2.5 s
                  decodes("eagle@margin", *[turn(2, 2, what=.5)] * 2),                # in 3 s
                  decodes("eagle@tapout", *[turn(4, 1, what=1.0)] * 3),               # in 6 s
                  decodes("eagle@tapout (warm)", *[turn(2, 2, what=.3)] * 2),         # in 2.6 s
                  decodes("draft-model(depth=4)", *[turn(4, 1, what=1.0)] * 3))


def test_tapout_is_held_against_the_fastest_of_its_arms_played_alone(run):
    lines = length_policies.policies_by_drafter(run)["eagle"]
    assert set(tapout_arms.arms_alone(lines)) == {"svip", "margin"}
    found = tapout_arms.bandit_table(run, lines)
    assert found["tapout"] | {"95 %": ""} == {
        "best single arm": "svip", "of arms": "2 of 5", "95 %": "", "surely": "yes", "within 5%": "no",
        "times as fast": pytest.approx(2.5 / 6),
        "equal shares": pytest.approx(2.5 / 2.75)}                          # the mean of 2.5 s and 3 s
    assert found["tapout (warm)"]["within 5%"] == "yes"
    assert found["tapout (warm)"]["surely"] == "yes"
    assert tapout_arms.bandit_table(run, length_policies.policies_by_drafter(run)["draft-model"]) == {}


def test_an_arm_with_another_threshold_is_not_the_arm_and_the_depth_does_not_matter():
    lines = [policy_result(f"eagle@{policy}") for policy in ("svip(h=0.4)", "margin(depth=3)", "confidence",
                                                             "svip@match", "confidence(of='best')", "tapout (warm)")]
    assert {name: one.policy for name, one in tapout_arms.arms_alone(lines).items()} == {
        "margin": "margin(depth=3)", "confidence": "confidence(of='best')"}
