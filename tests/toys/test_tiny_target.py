"""The toy is a target that a drafter can learn, and the same one every time."""

from specdec_lib.toys.tiny_target import ToyText, toy_answers, toy_checkpoint, toy_target
from specdec_lib.training.data.dataset import make_dataset
from specdec_lib.types import Draft


def test_its_answers_are_its_own_and_the_same_every_time():
    target = toy_target()
    answers = toy_answers(target, count=6, length=8)
    assert answers == toy_answers(toy_target(), count=6, length=8)
    greedy = next(answer for answer in answers if answer["temperature"] == 0)
    text, lm = ToyText().encode_chat([greedy["prompt"]]), target.fresh()
    for token in greedy["output"]:
        assert lm(text, Draft()).best[0] == token
        text += (token,)


def test_its_answers_make_a_course_with_held_out_prompts():
    target = toy_target()
    lessons = make_dataset(target, ToyText(), toy_answers(target, count=120, length=8), None, rows=96)
    assert lessons.tokens > 1000
    assert sum(map(len, lessons.held)) >= 1


def test_a_few_steps_make_a_drafter_of_it_that_training_has_taught():
    measured = toy_checkpoint("early-exit", toy_target(), steps=30).card["measured"]
    rate = {when: parts["exit 3"]["tokens_per_target_forward"] for when, parts in measured.items()}
    assert rate["teacher-forced"] > rate["as it starts"]
    assert rate["live"] > 1.05


def test_a_drafter_whose_method_has_another_name_is_measured_in_the_loop_by_that_method():
    told = {when: parts["diffusion-lm"]["tokens_per_target_forward"]
            for when, parts in toy_checkpoint("diffusion-lm", toy_target(), steps=40).card["measured"].items()}
    assert told["teacher-forced"] > told["from random weights"] + .2
    assert told["live"] > 1.05


def test_one_that_goes_on_from_another_starts_where_that_one_ended():
    target = toy_target()
    base = toy_checkpoint("diffusion-lm", target, steps=6)
    further = toy_checkpoint("diffusion-lm-aligned", target, steps=3, base=base)
    ended, began = base.card["measured"]["teacher-forced"], further.card["measured"]["as it starts"]
    assert began["diffusion-lm-aligned"] == ended["diffusion-lm"]
    assert further.card["measured"]["teacher-forced"]["diffusion-lm-aligned"] != ended["diffusion-lm"]
