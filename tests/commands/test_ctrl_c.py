"""Ctrl-C at any time is one sentence and exit code 130, and never a traceback."""

import os
import signal
import subprocess
import sys

import pytest
import typer

from specdec_lib import cli
from specdec_lib.commands import ctrl_c
from specdec_lib.commands.exit_codes import exit_code

INTERRUPTED = """
import os, signal, sys

def at(event, args):
    if event == "import" and args[0] == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(at)
from specdec_lib.cli import run
sys.exit(run(["bench", "--target", "nobody"]))
"""


@pytest.mark.parametrize("module", ["typer", "pyarrow"])     # of the command line itself, and of a command
def test_while_modules_load_it_is_one_sentence(module):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", ctrl_c.SENTENCE + "\n")


def test_a_process_that_has_the_command_line_loaded_raises_keyboard_interrupt_again():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("command", ["cost", "overhead"])
def test_a_command_without_a_sentence_of_its_own_claims_nothing_that_is_not_so(command, tmp_path, capsys, monkeypatch):
    def interrupted(*words, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("specdec_lib.bench.options.prepare", interrupted)
    monkeypatch.setattr("specdec_lib.bench.overhead.overheads", interrupted)
    assert cli.run([command, "--out", str(tmp_path / "out.json")]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == ctrl_c.SENTENCE
    assert "or starts over where nothing is" in ctrl_c.SENTENCE
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("error", [ImportError, SystemError, RuntimeError])
def test_a_module_in_c_that_is_interrupted_while_it_loads_is_a_stop_and_no_error(error, capsys):
    app = typer.Typer()

    @app.command()
    def load(by: str):
        try:
            raise KeyboardInterrupt if by == "ctrl-c" else ValueError
        except BaseException as first:
            raise error("initialisation failed") from first

    assert exit_code(app, ["ctrl-c"]) == 130
    assert capsys.readouterr().err == ctrl_c.SENTENCE + "\n"
    with pytest.raises(error):
        exit_code(app, ["a bug"])


def test_the_end_of_a_file_inside_a_command_is_a_bug_and_no_stop():
    app = typer.Typer()

    @app.command()
    def read():
        raise EOFError("a file ended early")

    with pytest.raises(EOFError, match="ended early"):
        exit_code(app, [])
