"""How a training is killed, by its progress callback, and how its minutes are counted."""

import shutil
from types import SimpleNamespace

import pytest

from specdec_lib.training.time_budget import TimeBudget


class Killed(Exception):
    """Stands for the end of a process."""


def killing_call(number: int):
    """A progress callback that dies when it is called for this time, counted from 1."""
    calls = []

    def progress(*now):
        calls.append(now)
        if len(calls) == number:
            raise Killed

    return progress


def killed_and_resumed(training, drafters, out, name: str, call: int):
    """What `training(out=..., progress=...)` makes in a copy of `drafters`, killed at this call and begun again."""
    shutil.copytree(drafters, out)
    with pytest.raises(Killed):
        training(out=out, progress=killing_call(call))
    assert not (out / name).exists()
    return training(out=out)


def minutes_twice(training, monkeypatch, module, reader: str) -> list[float]:
    """The minutes on the card of a training, and of the same again; each call of the module's reader takes one."""
    clock, real = SimpleNamespace(now=0.0), getattr(module, reader)

    def slowly(*given):
        clock.now += 60
        return real(*given)

    monkeypatch.setattr(module, "TimeBudget", lambda minutes: TimeBudget(minutes, lambda: clock.now))
    monkeypatch.setattr(module, reader, slowly)
    return [training().card["made"]["minutes"] for _ in range(2)]
