"""Controls of a race in a notebook: a prompt, a list of methods for each side, Start and Stop.

The race goes on in small steps of the kernel's own loop: some rounds, then a picture, then what the reader clicked. So
Stop takes effect after the round that is computed, and no other decode computes while a clock runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from time import perf_counter

from specdec_lib.bench.race import Race
from specdec_lib.show.cells import table
from specdec_lib.show.html import text
from specdec_lib.show.race import NO_KERNEL, race, race_rows
from specdec_lib.show.toy_text import Names
from specdec_lib.types import Refusal

PAUSE = 0.1                                        # seconds of rounds between two pictures
Begin = Callable[[str, tuple[str, ...]], Race]     # from a prompt and methods to a race that has not started
Later = Callable[[Callable[[], None]], None]       # has the kernel call this once it has handled what was clicked


def race_controls(begin: Begin, prompt: str, methods: Sequence[str], names: Names | None = None):
    """The controls, the first two methods chosen; where no kernel answers clicks, a sentence that says so."""
    if os.environ.get("SPECDEC_EXPLORE", "live") != "live":
        return text(NO_KERNEL)
    return RaceControls(begin, prompt, methods, names).box


def in_kernel(step: Callable[[], None]) -> None:
    """Calls the step from the loop that handles the kernel's messages."""
    from tornado.ioloop import IOLoop

    IOLoop.current().call_later(0.001, step)


class RaceControls:
    """The widgets of one race, and what a click does; `box` is what a notebook displays."""

    def __init__(self, begin: Begin, prompt: str, methods: Sequence[str], names: Names | None = None,
                 later: Later = in_kernel, pause: float = PAUSE):
        import ipywidgets as widgets

        self.begin, self.names, self.later, self.pause = begin, names, later, pause
        self.race: Race | None = None
        self.ending = False                        # Stop was pressed
        wide = {"description_width": "initial"}
        self.prompt = widgets.Textarea(prompt, description="prompt", layout={"width": "95%"}, style=wide)
        self.sides = [widgets.Dropdown(options=list(methods), value=chosen, description=side, style=wide,
                                       layout={"width": "max-content"})
                      for side, chosen in zip(("first", "second"), methods, strict=False)]
        self.start_button, self.stop_button = widgets.Button(description="Start"), widgets.Button(description="Stop")
        self.said, self.view = widgets.HTML(), widgets.HTML()
        self.start_button.on_click(self.start)
        self.stop_button.on_click(self.stop)
        for side in self.sides:
            side.observe(self.reset, names="value")
        row = widgets.HBox([*self.sides, self.start_button, self.stop_button], layout={"flex_flow": "row wrap"})
        self.box = widgets.VBox([self.prompt, row, self.said, self.view], layout={"width": "100%"})
        self.reset()

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(str(side.value) for side in self.sides)

    def start(self, *_) -> None:
        """Begins a race between the methods that are chosen, on the prompt as it stands, unless one is running."""
        if self.race is not None and self.race.running:
            return
        self.tell("the methods decode a few tokens first, on no clock", running=True)
        try:
            self.race, self.ending = self.begin(self.prompt.value, self.methods), False
            self.race.start()
        except Refusal as error:
            self.tell(str(error), running=False)
            return
        self.tell("", running=True)
        self.later(partial(self.go_on, self.race))

    def stop(self, *_) -> None:
        """Asks the race to end after the round that is being computed; the strips and a table stay."""
        self.ending = True
        self.stop_button.disabled = True

    def reset(self, *_) -> None:
        """Leaves a race that is running; another one of the methods chosen can begin."""
        self.race = None
        self.view.value = ""
        self.tell(f"Start lets {' and '.join(self.methods)} decode the prompt in turn.", running=False)

    def go_on(self, one: Race) -> None:
        """Some rounds and a picture; then the kernel handles clicks and calls this again.

        A kernel may handle a click in another thread, so nothing but this function ever touches a race that runs.
        """
        try:
            until = perf_counter() + self.pause
            while one is self.race and not self.ending and one.step() and perf_counter() < until:
                pass
        except Exception as error:                 # a kernel's loop would show it nowhere
            self.tell(str(error) or type(error).__name__, running=False)
            if not isinstance(error, Refusal):
                raise
            return
        if one is not self.race or self.ending:
            one.stop()
        if one is self.race:
            self.draw()
            if one.running:
                self.later(partial(self.go_on, one))
            else:
                self.tell("" if one.state.finished else "stopped", running=False)

    def draw(self) -> None:
        """The strips as they stand, with the table once nobody computes."""
        if self.race is not None:
            rows = None if self.race.running else table(race_rows(self.race.state))._repr_html_()
            self.view.value = race(self.race.state, self.names).html + (rows or "")

    def tell(self, sentence: str, running: bool) -> None:
        """A sentence under the buttons, of which those that do something can be pressed."""
        self.said.value = escape(sentence)
        self.start_button.disabled, self.stop_button.disabled = running, not running
