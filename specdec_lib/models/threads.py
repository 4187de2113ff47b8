"""How many threads torch computes with: one for short work, all of them once a model is loaded.

A replayed row and a board of a small network are short work: two threads spend most of it waiting for each other, four
to ten times as long on a busy machine. What does such work lowers the number, and a model that is loaded before or
later has its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class ThreadState:
    """What this process has loaded so far."""

    model: bool = False
    lowered_from: int | None = None


STATE = ThreadState()


def for_short_work() -> None:
    """One thread, unless a model has been loaded in this process."""
    if not STATE.model and torch.get_num_threads() > 1:
        STATE.lowered_from = torch.get_num_threads()
        torch.set_num_threads(1)


def for_model(threads: int | None = None) -> None:
    """So many threads; without a number what they were before a recording lowered them."""
    STATE.model = True
    wanted = STATE.lowered_from if threads is None else threads
    STATE.lowered_from = None
    if wanted is not None:
        torch.set_num_threads(wanted)
