"""Kernels forked from one process that has imported what every notebook imports, so that many notebooks start sooner.

A kernel of its own imports torch, pandas and plotly anew, which takes seconds of a core for each notebook of a site.
Python's fork server imports them once, and its forks share them. On systems other than Linux, and for kernels of
another Python, a kernel starts as usual.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

LAUNCHER = [sys.executable, "-m", "ipykernel_launcher"]
# Only packages of others: our own modules each kernel imports from the path that its notebook is given. And none that
# looks for a notebook around it when it is imported, as ipywidgets does, and plotly.graph_objects with it. And none
# that reads variables then which a kernel may have otherwise, as transformers does (HF_HUB_OFFLINE).
IMPORTED = ["ipykernel.kernelapp", "ipykernel.ipkernel", "nbformat", "pandas.io.formats.style", "pyarrow.parquet",
            "torch", "torch._dynamo", "safetensors.torch", "_plotly_utils.basevalidators"]
SEARCHES = 20_000, 20, 50                          # thresholds of the collector: notebooks make much and drop little
STARTING = Lock()                                  # one start at a time: each hides the main module


def can_fork(command: Sequence[str]) -> bool:
    """Whether a kernel with this command can be a fork: on Linux, of this Python and of ipykernel."""
    return sys.platform == "linux" and list(command[:3]) == LAUNCHER


class ForkedProvisioner(LocalProvisioner):
    """Starts a kernel as a fork of the process with the imports, and as usual where `can_fork` says no."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Starts the kernel that this command would start, in the folder `cwd` and with the variables `env`."""
        if not can_fork(cmd):
            return await super().launch_kernel(cmd, **kwargs)
        folder = Path(kwargs.get("cwd") or Path.cwd())
        self.process = ForkedProcess(cmd[len(LAUNCHER):], folder, kwargs.get("env") or os.environ)
        self.pid = self.pgid = self.process.pid    # its group has its own number, which the fork asks for first of all
        self.cwd = folder
        return self.connection_info


class ForkedProcess:
    """A fork as jupyter_client sees a process: the part of `subprocess.Popen` that it uses."""

    stdin = stdout = stderr = None

    def __init__(self, words: Sequence[str], folder: Path, variables: Mapping[str, str]):
        """Starts a kernel with these words of its command line, in this folder, with exactly these variables."""
        forks = get_context("forkserver")
        forks.set_forkserver_preload(IMPORTED)
        self.process = forks.Process(target=serve, args=(list(words), str(folder), dict(variables)))
        with STARTING, hidden_main(), no_interrupt():
            self.process.start()
        self.pid: int = self.process.pid or 0

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self.process.exitcode

    def wait(self) -> int | None:
        """Waits for its end and returns the exit code."""
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        """Sends it a signal; none if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):     # it has ended since
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)


@contextmanager
def hidden_main() -> Iterator[None]:
    """Hides the main module, which a fork would otherwise run again: it may be a script without a guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def no_interrupt() -> Iterator[None]:
    """Blocks SIGINT in this thread and in what it starts: Ctrl-C would otherwise meet the server amid its imports."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(words: Sequence[str], folder: str, variables: Mapping[str, str]) -> None:
    """The kernel: in a group of its own, in this folder, with exactly these variables, until it is shut down."""
    gc.freeze()                                    # what was imported is no garbage and need not be searched for it
    gc.set_threshold(*SEARCHES)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:0] = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path not in {"", *sys.path}]
    Thread(target=end_with_parent, daemon=True).start()
    import torch
    from ipykernel.kernelapp import IPKernelApp

    if threads := variables.get("OMP_NUM_THREADS"):    # torch has read its own when it was imported
        torch.set_num_threads(int(threads))
    app = IPKernelApp.instance()
    app.initialize([*words, f"--IPKernelApp.parent_handle={os.getppid()}"])
    try:
        app.start()
    finally:
        atexit._run_exitfuncs()                    # a fork ends without them


def end_with_parent() -> None:
    """Ends this process and its group when the process that asked for it is gone."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.killpg(os.getpgrp(), signal.SIGKILL)
