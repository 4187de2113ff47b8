"""The controls of a race: what a click does, without a browser and without a kernel."""

import pytest

from specdec_lib import show
from specdec_lib.bench.race import Race
from specdec_lib.show.race_controls import RaceControls
from specdec_lib.types import Refusal
from tests.bench.test_race import VOCAB, Watch

METHODS = ["ar", "copy", "eagle"]


class Desk:
    """Controls whose kernel calls the next step when `turn` says so; every step is one round."""

    def __init__(self, **more):
        self.watch, self.asked, self.waiting = Watch(), [], []
        self.controls = RaceControls(self.begin, "go on", METHODS, VOCAB, self.waiting.append, pause=0.0)
        self.more = more

    def begin(self, prompt, methods):
        self.asked.append((prompt, methods))
        if not prompt:
            raise Refusal("the prompt is empty: <b>give</b> some text")
        sources = {"ar": "", "copy": "suffix-automaton", "eagle": "eagle"}
        return Race({name: self.watch.decoding(name, 1.0, sources[name], **self.more) for name in methods},
                    timer=self.watch)

    def turn(self, steps=100):
        while self.waiting and steps:
            self.waiting.pop(0)()
            steps -= 1

    def pressable(self):
        return not self.controls.start_button.disabled, not self.controls.stop_button.disabled


def test_start_races_the_chosen_methods_on_the_prompt_as_it_stands():
    desk = Desk()
    controls = desk.controls
    assert desk.pressable() == (True, False)
    controls.prompt.value = "my own"
    controls.sides[1].value = "eagle"
    controls.start_button.click()
    assert desk.asked == [("my own", ("ar", "eagle"))]
    assert desk.pressable() == (False, True)
    desk.turn(1)
    assert desk.watch.log == ["ar"], "one step, then the kernel may handle a click"
    assert "ar</b>: 1.00 s, 1 tokens" in controls.view.value
    assert "same ids" not in controls.view.value
    desk.turn()
    assert controls.race.state.finished
    assert "eagle</b>: 2.00 s, 4 tokens" in controls.view.value
    assert "same ids as ar" in controls.view.value
    assert desk.pressable() == (True, False)
    assert desk.waiting == []


def test_stop_works_after_the_round_that_is_computed_and_leaves_the_strips_and_a_table():
    desk = Desk(tokens=100)
    desk.controls.start_button.click()
    desk.turn(3)
    desk.controls.stop_button.click()
    assert desk.pressable() == (False, False)
    assert desk.watch.ended == [], "the click itself touches no decode: one may be computing in another thread"
    desk.turn()
    assert len(desk.watch.log) == 3
    assert sorted(desk.watch.ended) == ["ar", "copy"]
    assert desk.controls.said.value == "stopped"
    assert "so far" in desk.controls.view.value
    assert desk.pressable() == (True, False)
    desk.controls.start_button.click()
    desk.turn(2)
    assert len(desk.watch.log) == 5, "a race that was stopped keeps no other from starting"


def test_a_click_while_a_round_is_computed_ends_the_race_after_that_round():
    desk = Desk(tokens=100)
    desk.controls.pause = 1e9                      # one step of the kernel is a whole race
    desk.controls.start_button.click()
    step = desk.controls.race.step
    desk.controls.race.step = lambda: (step(), len(desk.watch.log) == 4 and desk.controls.stop_button.click())[0]
    desk.turn(1)
    assert len(desk.watch.log) == 4
    assert desk.controls.said.value == "stopped"


def test_another_start_is_ignored_and_another_method_leaves_no_step_of_the_race_before():
    desk = Desk(tokens=100)
    desk.controls.start_button.click()
    desk.turn(2)
    desk.controls.start()
    assert len(desk.asked) == 1
    desk.turn(2)
    assert len(desk.watch.log) == 4
    desk.controls.sides[0].value = "eagle"
    assert desk.controls.view.value == ""
    assert "eagle and copy" in desk.controls.said.value
    desk.turn()
    assert len(desk.watch.log) == 4
    assert sorted(desk.watch.ended) == ["ar", "copy"]
    assert desk.pressable() == (True, False)


def test_what_is_refused_is_said_under_the_buttons_as_text():
    desk = Desk()
    desk.controls.prompt.value = ""
    desk.controls.start_button.click()
    assert desk.controls.said.value == "the prompt is empty: &lt;b&gt;give&lt;/b&gt; some text"
    assert desk.pressable() == (True, False)
    assert desk.waiting == []


def test_a_failure_while_decoding_is_shown_and_raised():
    desk = Desk()
    desk.controls.start_button.click()
    desk.controls.race.streams["ar"] = iter(lambda: 1 / 0, None)
    with pytest.raises(ZeroDivisionError):
        desk.turn(1)
    assert "division by zero" in desk.controls.said.value
    assert desk.pressable() == (True, False)
    assert not desk.controls.race.running


@pytest.mark.parametrize("mode", ["html", "static"])
def test_a_page_without_a_kernel_has_a_sentence_and_no_buttons(mode, monkeypatch):
    monkeypatch.setenv("SPECDEC_EXPLORE", mode)
    shown = show.race_controls(Desk().begin, "go on", METHODS, VOCAB)
    assert "no kernel" in repr(shown)
    assert "button" not in shown.html.lower()
    monkeypatch.setenv("SPECDEC_EXPLORE", "live")
    assert len(show.race_controls(Desk().begin, "go on", METHODS, VOCAB).children) == 4
