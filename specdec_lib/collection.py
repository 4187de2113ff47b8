"""Keeping Python's garbage collector from searching what is no garbage.

A full search visits every object of the process. With torch, pandas and plotly loaded that takes tenths of a second,
and code that makes many objects starts one search after another.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Turns the collector off in all threads of this process, for work that makes many objects and drops few."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def beside_what_is_loaded() -> Iterator[None]:
    """Lets the collector search only objects that are made inside this context; older ones are searched after it."""
    if gc.get_freeze_count():                      # somebody keeps such objects apart already
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
