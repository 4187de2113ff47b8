"""Examples are cleaned of loops, repetitions and forbidden prompts, and split by the text of their prompt."""

import pytest

from specdec_lib.training.data.examples import (
    Example,
    common_start,
    examples,
    frequent,
    is_held_out,
    learned_from,
    without_loop,
)
from specdec_lib.types import Refusal


def record(prompt: str = "hi", output=(1, 2, 3), temperature: float = 0.0, source: str = "self") -> dict:
    return {"source": source, "temperature": temperature, "prompt": prompt, "output": list(output)}


def encode(texts) -> tuple[int, ...]:
    """Letters as ids, and a zero where the answer begins."""
    return (*map(ord, texts[-1]), 0)


def clean(*records, **options) -> list[Example]:
    return list(examples(records, encode, **options))


def test_a_record_becomes_its_prompts_ids_and_its_output():
    one, = clean(record("a", (5, 6), 0.6, "chat"))
    assert one == Example((97, 0), (5, 6), "chat", 0.6, is_held_out("a"))
    assert one.tokens == (97, 0, 5, 6)
    assert len(one) == 4


def test_the_same_answer_to_the_same_prompt_is_taken_once():
    kept = clean(record(), record(temperature=0.6), record("  HI "), record(output=(1, 2, 4)), record("ho"))
    assert [(one.prompt, one.output) for one in kept] == [
        (encode(["hi"]), (1, 2, 3)), (encode(["hi"]), (1, 2, 4)), (encode(["ho"]), (1, 2, 3))]


def test_forbidden_prompts_are_left_out_however_they_are_spaced_or_capitalised():
    assert [one.output for one in clean(record("What  IS this", (1, 2)), record("what is that", (3, 4)),
                                        forbidden=frozenset(["what is this"]))] == [(3, 4)]


@pytest.mark.parametrize("field", ["source", "temperature", "prompt", "output"])
def test_a_record_without_one_of_its_fields_is_refused_by_its_place(field):
    broken = record("ho")
    del broken[field]
    with pytest.raises(Refusal, match=f"record 2 of the training data lacks '{field}'"):
        clean(record(), broken)


def test_prompt_and_answer_are_cut_to_the_longest_length_together():
    one, = clean(record("abc", range(20)), longest=10)
    assert len(one) == 10
    assert one.output == tuple(range(6))


def test_answers_of_less_than_two_tokens_are_left_out():
    assert clean(record("a", (1,)), record("b", ()), record("c" * 9, (1, 2, 3), 0.0), longest=9) == []


def test_an_answer_without_a_loop_is_left_whole():
    assert without_loop(range(200)) == tuple(range(200))
    refrain = (1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5, 8, 1, 2, 3, 4, 5)
    assert without_loop(refrain, longest=5) == refrain


@pytest.mark.parametrize("period", [1, 2, 7, 32])
def test_a_loop_is_cut_where_it_has_repeated_itself_for_long_enough(period):
    head, block = (100, 101, 102), tuple(range(period))
    looping = head + block * 200
    assert without_loop(looping) == looping[:3 + period + 64]
    assert without_loop(looping, longest=5) == looping[:3 + period + 5]


def test_a_repetition_of_exactly_the_longest_length_is_kept():
    assert without_loop((7,) * 6, longest=5) == (7,) * 6
    assert without_loop((7,) * 7, longest=5) == (7,) * 6


def test_what_follows_a_loop_goes_with_it():
    assert without_loop((1, *[2] * 9, 3, 4), longest=3) == (1, 2, 2, 2, 2)


def test_blocks_longer_than_the_longest_period_are_no_loop():
    assert len(without_loop(tuple(range(33)) * 10)) == 330
    assert len(without_loop(tuple(range(33)) * 10, period=33)) == 33 + 64


def test_looping_answers_are_cut_when_examples_are_made():
    one, = clean(record("a", [5] * 300))
    assert one.output == (5,) * 65


def test_a_prompt_is_held_out_by_its_text_alone():
    kept = clean(*(record(f"prompt {i}", (1, 2, word), temperature, source) for i in range(60)
                   for word, temperature, source in ((3, 0.0, "self"), (4, 0.6, "chat"), (5, 1.0, "code"))))
    by_prompt: dict[tuple, set] = {}
    for one in kept:
        by_prompt.setdefault(one.prompt, set()).add(one.held_out)
    assert len(by_prompt) == 60
    assert all(len(sides) == 1 for sides in by_prompt.values())
    assert all(is_held_out(f"A  Prompt {i} ") == is_held_out(f"a prompt {i}") for i in range(60))


def test_the_split_is_the_same_in_every_process_and_about_one_in_twenty():
    held = [i for i in range(2000) if is_held_out(f"prompt {i}")]
    assert held[:5] == [3, 34, 40, 42, 52]         # written down: a change would measure on what was trained on
    assert 70 < len(held) < 130


def test_the_draft_vocabulary_is_the_most_frequent_output_tokens_in_order():
    data = [Example((9, 9, 9), (5, 3, 5)), Example((9,), (3, 5, 7, 2))]
    assert frequent(data, 2) == [3, 5]
    assert frequent(data, 3) == [2, 3, 5]          # of equals the smaller id
    assert frequent(data, 100) == [2, 3, 5, 7]     # prompts do not count


def test_the_common_start_is_what_all_prompts_begin_with():
    assert common_start([Example((1, 2, 3, 4), ()), Example((1, 2, 5), ()), Example((1, 2, 3), ())]) == 2
    assert common_start([Example((1, 2), ()), Example((1, 2, 5), ())]) == 2
    assert common_start([Example((3,), ()), Example((4,), ())]) == 0


def test_an_example_is_learned_from_any_of_its_tokens_on():
    one = learned_from(Example((1, 2, 3), (4, 5), "qa", 0.7), 1)
    assert one == Example((1,), (2, 3, 4, 5), "qa", 0.7)


def test_kept_tokens_are_in_the_vocabulary_however_rare():
    data = [Example((9,), (5, 3, 5, 3, 7, 2))]
    assert frequent(data, 2, keep=[7]) == [3, 7]
    assert frequent(data, 2, keep=[8]) == [3, 5]   # nobody said it


def test_an_answer_is_learned_behind_the_systems_turn_and_is_another_behind_another():
    first = {**record("a", (7, 8)), "system": "Be brief."}
    one, = examples([first], lambda history: tuple(len(text) for role, text in history))
    assert one.prompt == (len("Be brief."), 1)
    assert one.held_out == is_held_out("a")
    assert len(list(examples([first, first, {**first, "system": "Be long."}], lambda history: (5,)))) == 2


def test_a_later_turn_is_learned_in_its_context_and_held_out_with_its_conversation():
    held = next(text for text in map(str, range(1000)) if is_held_out(text))
    later = {**record("b", (7, 8)), "earlier": [held, "an answer"]}
    one, = examples([later], lambda texts: tuple(map(len, texts)))
    assert one.prompt == (len(held), len("an answer"), 1)
    assert one.held_out
    assert len(clean(later, record("b", (7, 8)))) == 2, "the same words after other turns are another prompt"
    assert clean(later, forbidden=frozenset([held])) == clean(later, forbidden=frozenset("b")) == []
    assert len(clean(later, forbidden=frozenset(["an answer"]))) == 1, "an answer is no prompt"
