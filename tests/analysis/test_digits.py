"""Numbers and sentences on a run of digits follow from its summary."""

from pathlib import Path

import pytest

from specdec_lib.analysis.digits import (
    DigitsRun,
    acceptance_sentence,
    alignment,
    images_sentence,
    quality_rows,
    quality_sentence,
    speed_rows,
    speed_sentence,
    told_apart,
)


def found(seconds, acceptance, p_value, **more):
    return {"kind": "diffusion", "speculates": acceptance is not None, "lossless": True, "images": 10, "batches": 2,
            "target_forwards": 32, "draft_forwards": 0, "seconds": seconds, "acceptance": acceptance,
            "p_value": p_value, "energy": 0.1, "accuracy": 0.9, "accuracy_interval": [0.8, 0.95], "frechet": 1.0} | more


RUN = DigitsRun(Path(), {"methods": {"diffusion-plain": found(2.0, None, 0.5), "diffusion": found(1.0, 0.4, 0.6),
                                     "diffusion(aligned=False)": found(4.0, 0.1, 0.001)}})


def test_speed_is_taken_against_the_target_alone():
    assert [row["speed-up"] for row in speed_rows(RUN)] == [1, 2, 0.5]
    assert [row["ms per image"] for row in speed_rows(RUN)] == [200, 100, 400]


def test_a_draft_forward_pays_below_the_target_forwards_that_it_saves():
    fewer = found(1.0, 0.4, 0.6, target_forwards=12, draft_forwards=40)
    rows = speed_rows(DigitsRun(Path(), {"methods": {"diffusion-plain": found(2.0, None, 0.5), "diffusion": fewer}}))
    assert [row["draft forwards per batch"] for row in rows] == [0, 20]
    assert [row["may cost each"] for row in rows] == [None, 0.5]
    [alone] = speed_rows(DigitsRun(Path(), {"methods": {"diffusion": fewer}}))
    assert alone["may cost each"] is None


def test_a_run_that_was_not_timed_says_nothing_of_speed():
    untimed = DigitsRun(Path(), {"methods": {name: {**one, "seconds": None} for name, one in RUN.methods.items()}})
    assert [row["speed-up"] for row in speed_rows(untimed)] == [None] * 3


def test_the_factor_of_alignment_is_the_ratio_of_both_acceptances():
    told = alignment(RUN)
    assert told["factor"] == pytest.approx(4)
    assert told["published factor"] == pytest.approx(3.4)
    assert alignment(DigitsRun(Path(), {"methods": {}}))["factor"] is None


def test_images_are_told_apart_by_the_p_value_alone():
    assert [told_apart(one).split()[0] for one in RUN.methods.values()] == ["not", "not", "told"]
    assert told_apart({"p_value": None}).startswith("no plain")
    assert quality_rows(RUN)[0]["accuracy"] == "0.900 (0.800 to 0.950)"


@pytest.mark.parametrize(("acceptance", "p", "said"), [
    (None, 0.5, "x (one distribution by construction): not told apart from plain images, p = 0.500"),
    (None, 0.038, "p = 0.038; a p below 0.05 is chance here, and methods that take this noise inherit it"),
    (None, 0.05, "not told apart from plain images, p = 0.050"),
    (0.4, 0.038, "x (lossless): not told apart from plain images, p = 0.038"),
    (0.4, 0.002, "x (lossless): told apart from plain images, p = 0.002")])
def test_a_small_p_of_the_target_against_itself_is_called_chance_and_one_of_a_method_is_not(acceptance, p, said):
    assert quality_sentence("x", found(1.0, acceptance, p)).endswith(said)


def test_the_answer_counts_methods_told_apart_and_faster_ones():
    clocked = {"diffusion-plain": found(2.0, None, 0.5, seconds_by_batch=[1.0] * 5),
               "diffusion": found(1.0, 0.4, 0.6, seconds_by_batch=[0.5] * 5),
               "diffusion(aligned=False)": found(4.0, 0.1, 0.001, seconds_by_batch=[2.0] * 5),
               "diffusion-published": found(1.0, 0.7, 0.001, lossless=False, seconds_by_batch=[0.1] * 5)}
    timed = DigitsRun(Path(), {"methods": clocked, "provenance": {"machine": {"processor": "Chip"}}})
    assert images_sentence(timed) == ("Told apart from the target's own images are 1 of 2 lossless and 1 of 1 lossy "
                                      "methods of the recorded run.")
    assert acceptance_sentence(timed) == "The exact rule accepts 10% to 40% of the drafted patches that it tests."
    assert speed_sentence(timed) == ("On Chip lossless methods ran at 0.50 to 2.00 times the speed of the target "
                                     "alone; surely faster: 1 of 2.")


def test_methods_that_are_accepted_alike_are_told_with_one_share():
    methods = {name: found(1.0, share, 0.5) for name, share in (("a", 0.32), ("b", 0.321))}
    alike = DigitsRun(Path(), {"methods": methods})
    assert acceptance_sentence(alike) == "The exact rule accepts 32% of the drafted patches that it tests."


def test_a_run_of_the_target_alone_has_no_answer():
    alone = DigitsRun(Path(), {"methods": {"diffusion-plain": found(None, None, None)}})
    assert images_sentence(alone) == "No method of the run can be compared with images of the target alone."
    assert acceptance_sentence(alone) == "No lossless method was run."
    assert speed_sentence(alone) == "No lossless method was timed beside the target alone."
