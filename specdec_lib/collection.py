"""When Python's garbage collector searches, and through what.

A search goes through every object of the process. With torch, pandas and plotly loaded these are a quarter of a million
objects and 0.2 seconds of a slow core, and whoever makes many objects starts one search after another.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage is collected meanwhile, in any thread of this process. For work that makes much and drops little."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def beside_what_is_loaded() -> Iterator[None]:
    """Meanwhile garbage is looked for among objects that are made meanwhile, and not among those of before."""
    if gc.get_freeze_count():                      # somebody keeps such objects apart already
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
