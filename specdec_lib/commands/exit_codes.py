"""Expected failures of a command: one sentence on stderr and an exit code. Anything else is a bug: a traceback."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import typer

from specdec_lib.commands.ctrl_c import SENTENCE, STOPPED
from specdec_lib.commands.printable import one_line
from specdec_lib.files import DiskFull, broken_unicode, why_full, writing
from specdec_lib.types import Refusal

BAD_INPUT, FAILED = 2, 1
NO_MEMORY = ("specdec: the device has no memory left: take a smaller model, a narrower --dtype or --device cpu, or give"
             " smaller numbers")
CLICK = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])    # click's base of usage errors, wherever it is


class Stopped(Exception):
    """Ctrl-C, with the sentence that says how to resume."""


def say(line: str) -> None:
    """Prints one line on stderr."""
    typer.echo(line, err=True)


def check_here(words: list[str]) -> None:
    """Refuses a folder that is gone, and a word that no file and no tokenizer can hold: not UTF-8, or a zero byte."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise Refusal("the folder that you are in has been removed: change to another one") from None
    for place, word in enumerate(words, 1):
        if "\0" in word or broken_unicode(word):
            raise Refusal(f"word {place} of the command is not UTF-8 text: save it as UTF-8, or rename the file")


def after_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C led to this error: modules in C that are interrupted while they load raise one of their own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def open_streams() -> None:
    """Gives the process streams where it was started without them, and lets no letter fail that a terminal lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))         # noqa: SIM115 - for the whole process
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def flushed(code: int) -> int:
    """The exit code once all that was printed has left this process; that of a failure where nobody can take it."""
    try:
        sys.stdout.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())      # or Python reports the same error once more when it ends
        if isinstance(error, BrokenPipeError):     # a reader that has enough, such as `head`
            return code or FAILED
        say(f"specdec: {why_nameless(error)}")
        return BAD_INPUT
    return code


@lru_cache(8)
def command_of(app: typer.Typer) -> Callable[..., Any]:
    """What runs the commands of this app: typer builds them all anew for every call, in a tenth of a second."""
    return typer.main.get_command(app)


def exit_code(app: typer.Typer, words: list[str] | None = None) -> int:
    """Runs the command that these words name and returns its exit code."""
    try:
        check_here(sys.argv[1:] if words is None else words)
        code = command_of(app)(words, standalone_mode=False)
        if code == STOPPED:                        # typer's answer to Ctrl-C, which says nothing
            say(SENTENCE)
        return code if isinstance(code, int) else 0
    except Refusal as error:
        say(f"specdec: {one_line(str(error))}")
    except CLICK as error:
        say(f"specdec: {one_line(error.format_message())}{help_for(error)}" if error.format_message() else "")
    except Stopped as error:
        say(str(error))
        return STOPPED
    except KeyboardInterrupt:
        say(SENTENCE)
        return STOPPED
    except typer.Abort as error:                   # typer's for the end of an input; no command asks for one
        raise error.__cause__ or error from None
    except (RuntimeError, ImportError, SystemError, MemoryError) as error:
        if after_interrupt(error):
            say(SENTENCE)
            return STOPPED
        if has_no_memory(error):
            say(NO_MEMORY)
            return BAD_INPUT
        if type(error).__name__ != "NotebookError":    # expected: it says which cell failed and what is kept
            raise
        say(f"specdec: {error}")
        return FAILED
    except OSError as error:
        say(f"specdec: {one_line(why_failed(error))}")
    return BAD_INPUT


def has_no_memory(error: Exception) -> bool:
    """Whether memory ran out: Python's, torch's on a device or, by its text alone, on the processor."""
    named = type(error).__name__ == "OutOfMemoryError"         # torch's, and torch is not loaded here
    return named or isinstance(error, MemoryError) or "DefaultCPUAllocator: " in str(error)


def help_for(error: Any) -> str:
    """Where the words that a command takes are listed; nothing for a value, whose refusal says what is taken."""
    context, names = getattr(error, "ctx", None), ["specdec"]
    if isinstance(error, typer.BadParameter) or context is None:
        return ""
    while context.parent is not None:
        names.insert(1, context.info_name)
        context = context.parent
    takes = "lists what it takes" if names[1:] else "lists the commands"
    return f"; `{' '.join(names)} --help` {takes}"


def why_failed(error: OSError) -> str:
    """What the file system refused with a remedy, and for a full disk the space that is left."""
    if error.filename is None:
        return why_nameless(error)
    try:
        with writing(Path(error.filename)):
            raise error
    except DiskFull as full:
        return str(full)
    except OSError:
        return f"{error.strerror or error}: {error.filename}; check the path, or give another one"


def why_nameless(error: OSError) -> str:
    """The same for an error that names no file, as where what is printed goes nowhere."""
    if why_full(error):
        return f"the output cannot be written: {why_full(error)}; free some space, or send it elsewhere"
    return str(error.strerror or error)
