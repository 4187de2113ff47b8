"""`generate --compare`: several answers in turn, as plain text or side by side, and a table at the end."""

import io
import re

import pytest
from rich.console import Console

from specdec_lib import cli
from specdec_lib.bench.race import ANSWERS, ROUNDS, Race
from specdec_lib.commands.exit_codes import Stopped
from specdec_lib.commands.race import Transcript, show_race, side_by_side, tail
from specdec_lib.hub.tokenizer import TextStream
from tests.bench.test_race import VOCAB, Watch, run
from tests.small_bench import model_fixture, refused  # noqa: F401  the fixture of the tiny model

COPIED = "48;2;0;114;178"                          # the background of a copied token, as a terminal is told


def stream():
    return TextStream(lambda ids: "".join(f" {VOCAB(token)}" for token in ids))


def shown(order, terminal, width=100, fail=None, tokens=4):
    """What a console holds after a race, and the sentence with which it was stopped."""
    watch = Watch()
    race = Race({"ar": watch.decoding("ar", 1.0, source="", tokens=tokens),
                 "copy[1]": watch.decoding("copy", 1.0, fail=fail, tokens=tokens)}, order, watch)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, height=30, color_system="truecolor"
                      if terminal else None, highlight=False, _environ={"TERM": "xterm"})
    try:
        show_race(race, stream, console)
        said = ""
    except Stopped as error:
        said = str(error)
    return console.file.getvalue(), said


def test_without_a_terminal_the_answers_follow_one_another_as_plain_text():
    text, stopped = shown(ANSWERS, terminal=False)
    assert stopped == ""
    assert "\x1b" not in text
    assert text.index("== ar") < text.index("[ar: 4.00 s") < text.index("== copy[1]") < text.index("[copy[1]: 2.00 s")
    assert text.count(" b c a b") == 2
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()[-3:]]
    assert rows[0] == ["method", "seconds", "prefill (s)", "tokens", "tokens/s", "tokens per forward", "times ar",
                       "same ids as ar"]
    assert rows[2] == ["copy[1]", "2.00", "0.50", "4", "2.0", "2.00", "2.00", "yes"]
    assert "one answer after another" in text


def test_on_a_terminal_tokens_stand_side_by_side_in_the_colours_of_their_sources():
    text, _ = shown(ROUNDS, terminal=True)
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    beside = [line for line in plain.splitlines() if line.startswith("ar: 4.00 s") and "copy[1]: 2.00 s" in line]
    assert beside, "both headings stand in one line"
    assert COPIED in text
    assert "the method whose clock is behind computes the next round" in re.sub(r"\s+", " ", plain)
    assert "corrected by the target" in plain


def test_a_narrow_terminal_shows_the_answers_below_one_another():
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown(ROUNDS, terminal=True, width=50)[0])
    assert not [line for line in plain.splitlines() if "ar: 4.00" in line and "copy[1]" in line]
    assert "copy[1]: 2.00 s" in plain


@pytest.mark.parametrize(("order", "terminal"), [(ANSWERS, False), (ROUNDS, True)])
def test_ctrl_c_ends_with_the_table_so_far(order, terminal):
    text, stopped = shown(order, terminal, fail=2)
    assert stopped.startswith("stopped: the table shows")
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    last = re.split(r"\s{2,}", next(line for line in reversed(plain.splitlines()) if line.strip()).strip())
    assert last[0] == "copy[1]"
    assert last[3] == "2"
    assert last[-1] == "so far"


def test_the_end_of_a_long_answer_is_what_a_terminal_shows():
    console = Console(file=io.StringIO(), width=20, height=10)
    state = run(Watch().race(one=1.0))
    told = Transcript(stream())
    told.follow(state.racers[0])
    told.text.append("x" * 200 + "end")
    assert str(tail(told.text, console, 18, 2)).endswith("end")
    assert len(str(tail(told.text, console, 18, 2)).splitlines()) == 2
    console.print(side_by_side(state, {"one": told}, console, 6))
    assert "end" in console.file.getvalue()
    assert len(console.file.getvalue().splitlines()) <= 8


def test_a_character_in_parts_and_control_codes_of_a_text_do_no_harm():
    told = Transcript(TextStream(lambda ids: "\x1b[31m" * len(ids)))
    assert told.follow(run(Watch().race(one=1.0)).racers[0]) == "[31m" * 4
    assert told.follow(run(Watch().race(one=1.0)).racers[0]) == "", "nothing is shown twice"
    parts = Transcript(TextStream(lambda ids: "é" * (len(ids) // 3) + "\ufffd" * (len(ids) % 3 > 0)))
    race = Watch().race(one=1.0)
    race.start()
    race.step()
    assert parts.follow(race.state.racers[0]) == "", "a part of a character waits"
    assert parts.follow(run(race).racers[0])[0] == "é"


def test_the_command_compares_methods_of_the_catalogue(model, capsys):
    words = ["generate", "--compare", "ar,sam(depth=3)", "--target", str(model), "--dtype", "float32", "--device",
             "cpu", "--threads", "1", "--max-new-tokens", "8", "a b c a b"]
    assert cli.run(words) == 0
    out = capsys.readouterr().out
    assert "== ar" in out
    assert "== sam(depth=3)" in out
    assert out.rstrip().splitlines()[-1].split()[-1] == "yes"


@pytest.mark.parametrize(("words", "said"), [
    (["--compare", "ar"], "two methods or more"), (["--compare", "ar,ar"], "named twice"),
    (["--compare", "ar,sam", "--method", "sam"], "not both"), (["--compare", "ar,nobody"], "no method"),
    (["--compare", ""], "two methods or more")])
def test_what_cannot_be_compared_is_refused(words, said, capsys):
    assert said in refused(["generate", *words, "a b"], capsys)
