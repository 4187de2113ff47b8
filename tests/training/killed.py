"""How a training is killed: its progress callback raises."""

import shutil

import pytest


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
