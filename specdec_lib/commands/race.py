"""`specdec generate` with --compare: one prompt by several methods, side by side while they decode, then as a table.

Each token is coloured by its source. Where no terminal shows it, the answers follow one another as plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from specdec_lib.bench.options import PreparedRun
from specdec_lib.bench.race import ANSWERS, TIMED, Race, Racer, RaceState
from specdec_lib.bench.race_start import WARM, check_race, prompt_race, warm_up
from specdec_lib.commands.exit_codes import Stopped, say
from specdec_lib.commands.text_table import print_table
from specdec_lib.figures.theme import readable_on
from specdec_lib.show.race import LOOKS, heading, race_rows, round_kinds
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal

FRAME = 0.08                                       # seconds between two pictures; no clock runs while one is drawn
NARROW = 28                                        # letters of a column below which answers stand below one another
UNSEEN = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))          # control codes: a terminal obeys them
STYLES = {kind: f"{readable_on(colour)} on {colour}" if colour else "" for kind, (colour, _) in LOOKS.items()}
STOPPED = "stopped: the table shows what was decoded until then, nothing is kept"
WARMED = f"Before the race every method decoded {WARM} tokens unmeasured."


class Transcript:
    """The coloured text of one answer, which grows with its rounds; a character may span several tokens."""

    def __init__(self, stream: Any):
        self.stream, self.text, self.rounds = stream, Text(), 0

    def follow(self, one: Racer) -> str:
        """Adds the rounds that are new and returns their text."""
        before = len(self.text)
        for each in one.session.rounds[self.rounds:] if one.session else ():
            self.rounds += 1
            for token, kind in zip(each.verdict.tokens, round_kinds(each), strict=True):
                self.text.append(self.stream.push((token,)).translate(UNSEEN), STYLES[kind])
        if one.done:
            self.text.append(self.stream.finish().translate(UNSEEN))
        return self.text.plain[before:]


def compared(words: str, method: str) -> list[str]:
    """The methods that --compare names; Refusal for fewer than two, or beside another --method."""
    if method != "ar":
        raise Refusal("give --method for one answer or --compare for several, not both")
    specs = split_specs(words)
    check_race(specs)
    return specs


def compare_answers(here: PreparedRun, specs: Sequence[str], prompt: str, console: Console | None = None) -> None:
    """Races the methods on the prompt and prints the table; Ctrl-C ends with the table so far."""
    console = console or Console(highlight=False)
    world = here.environment(say)
    race = prompt_race(here.plan, specs, world, prompt, here.saved_curve, None if console.is_terminal else ANSWERS)
    warm_up(here.plan, specs, world, here.saved_curve)
    show_race(race, world.stream, console)


def show_race(race: Race, stream: Callable[[], Any], console: Console) -> None:
    """Runs a race to its end, or to Ctrl-C, and prints its answers and its table."""
    told = {name: Transcript(stream()) for name in race.decodings}
    ended = False
    try:
        race.start()
        (play if console.is_terminal else recite)(race, told, console)
        ended = True
    except KeyboardInterrupt:
        pass
    finally:
        race.stop()
    if console.is_terminal:
        console.print(side_by_side(race.state, told, console, None), legend())
    console.print(TIMED[race.order], WARMED, highlight=False, style="dim" if console.is_terminal else "",
                  soft_wrap=not console.is_terminal)
    print_table(race_rows(race.state), console)
    if not ended:
        raise Stopped(STOPPED)


def play(race: Race, told: Mapping[str, Transcript], console: Console) -> None:
    """The answers side by side while they grow; pictures are drawn between rounds, by this thread."""
    drawn = 0.0
    with Live(console=console, auto_refresh=False, transient=True) as screen:
        more = True
        while more:
            more = race.step()
            if not more or perf_counter() - drawn > FRAME:
                follow(race.state, told)
                screen.update(side_by_side(race.state, told, console, max(3, console.height - 5)), refresh=True)
                drawn = perf_counter()
    follow(race.state, told)


def recite(race: Race, told: Mapping[str, Transcript], console: Console) -> None:
    """The answers one after another, as plain text that comes with each round."""
    while race.running:
        name = race.next_name()
        if not race.racers[name].clock:
            console.print(f"== {name}", markup=False, highlight=False)
        race.step()
        console.file.write(told[name].follow(race.racers[name]))
        console.file.flush()
        if race.racers[name].done:
            console.print(f"\n[{heading(race.racers[name])}]\n", markup=False, highlight=False, soft_wrap=True)


def follow(state: RaceState, told: Mapping[str, Transcript]) -> None:
    for one in state.racers:
        told[one.name].follow(one)


def side_by_side(state: RaceState, told: Mapping[str, Transcript], console: Console, height: int | None) -> Table:
    """The answers beside one another, below one another where columns would be narrow; the last `height` lines fit."""
    count = len(state.racers)
    beside = console.width // count >= NARROW
    wide = console.width // count - 2 if beside else console.width
    room = None if height is None else height // (1 if beside else count)
    cells = [cell(one, told[one.name].text, console, wide, room) for one in state.racers]
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for _ in range(count if beside else 1):
        grid.add_column(ratio=1, overflow="fold")
    for row in [cells] if beside else [[each] for each in cells]:
        grid.add_row(*row)
    return grid


def cell(one: Racer, text: Text, console: Console, wide: int, room: int | None) -> Text:
    """A racer's clock and rates, and below them what fits of its answer into `room` lines."""
    head = Text(heading(one) + (" done" if one.done else ""), "bold")
    rows = None if room is None else max(1, room - len(head.wrap(console, wide)) - 1)
    return Text("\n").join([head, Text(), tail(text, console, wide, rows)])


def tail(text: Text, console: Console, wide: int, rows: int | None) -> Text:
    """The last lines of a text that is wrapped at this width; None: all of it."""
    lines = text.wrap(console, wide)
    return Text("\n").join(lines if rows is None else lines[-rows:])


def legend() -> Text:
    """What the colours mean."""
    out = Text("\n")
    for kind, style in STYLES.items():
        out.append(kind, style)
        out.append("  ")
    return out
