"""Ctrl-C while the command line loads: one sentence and exit code 130, where Python would print a traceback.

Importing this module begins that time and `loaded()` ends it; a program with a handler of its own is left alone.
"""

from __future__ import annotations

import os
import signal
import threading

STOPPED = 130                                      # the exit code of a command that Ctrl-C ended
SENTENCE = "stopped: the same command goes on from what is kept, or starts over where nothing is"


def stop(*_: object) -> None:
    """Ends the process at once: nothing has been begun that would have to be put away."""
    os.write(2, f"{SENTENCE}\n".encode())
    os._exit(STOPPED)


def loaded() -> None:
    """From here on Ctrl-C is KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
    signal.signal(signal.SIGINT, stop)
