"""What a terminal is shown holds no character that steers it, and a refusal is one line."""

import typer

from specdec_lib.commands.exit_codes import BAD_INPUT, exit_code
from specdec_lib.commands.printable import one_line, printable
from specdec_lib.types import Refusal


def test_control_characters_are_shown_and_not_sent():
    text = "one\ttwo\r\nthree \x1b[31mred\x07 \x9b2J naïve 日本"
    assert printable(text) == "one\ttwo\nthree \ufffd[31mred\ufffd \ufffd2J naïve 日本"


def test_what_a_library_says_in_several_lines_is_one():
    assert one_line("cannot read: \x0f\nDeserializing failed.\r\n\n  really ") == (
        "cannot read: \ufffd Deserializing failed. really")


def test_a_refusal_is_one_line_whatever_it_quotes(capsys):
    app = typer.Typer()

    @app.command()
    def work(word: str):
        raise Refusal(f"{word} is not a run\nnor anything else")
    assert exit_code(app, ["a\x1b[2Jb"]) == BAD_INPUT
    assert capsys.readouterr().err == "specdec: a\ufffd[2Jb is not a run nor anything else\n"


def test_a_sentence_turns_no_text_around():
    assert one_line("there is no folder './a\u202etxt.exe\u2069'") == "there is no folder './a\ufffdtxt.exe\ufffd'"
    assert one_line("שלום") == "שלום"
