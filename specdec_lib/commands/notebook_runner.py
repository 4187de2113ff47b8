"""Running one notebook: parameters checked before anything starts, executed by papermill.

A notebook's cell tagged `parameters` holds one line per parameter, `prompts: int = 24  # what it means | smoke: 2`:
name, type, full value, the meaning, and the value for a quick test. A number may have bounds between them: `from 1`,
`from 0 to 1` or `above 0`. Knows nothing about the notebooks' content.
"""

from __future__ import annotations

import ast
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO
from uuid import uuid4

from specdec_lib.commands.printable import one_line
from specdec_lib.files import why_full, write_atomically
from specdec_lib.lazy import import_jsonschema
from specdec_lib.parameters import shown
from specdec_lib.types import Refusal

SHOWN = 800                                        # letters of why a cell failed
BOUNDS = re.compile(r"(from|above) (-?[\d.]+)(?: to (-?[\d.]+))?")
QUIET = "--IPKernelApp.log_level=CRITICAL"          # else a kernel says that its end interrupted it
KINDS = {"int": int, "float": (int, float), "str": str, "list": list, "bool": bool}


class NotebookError(RuntimeError):
    """A cell failed or took too long; what was executed until then is kept where the message says."""


class CellRefusal(NotebookError, Refusal):
    """A cell refused what the parameters say."""


@dataclass(frozen=True)
class Parameter:
    """One line of a notebook's parameters cell."""

    name: str
    kind: str                                      # one of KINDS
    default: Any
    smoke: Any                                     # the value of a quick run
    meaning: str
    bounds: str = ""                               # of a number, as `from 1 to 8`

    def allows(self, value: Any) -> bool:
        """Whether a value lies within the bounds, if there are any."""
        found = BOUNDS.fullmatch(self.bounds)
        if found is None:
            return True
        first, low, high = found.groups()
        return (value > float(low) if first == "above" else value >= float(low)) and value <= float(high or "inf")


@dataclass(frozen=True)
class NotebookRun:
    """An executed notebook."""

    path: Path
    seconds: float                                 # wall-clock, the start of the kernel included


def parameters(notebook: str | Path) -> dict[str, Parameter]:
    """The parameters of a notebook by name; Refusal for an unreadable one and for a malformed line."""
    import_jsonschema()
    import papermill

    path = Path(notebook)
    if not path.is_file():
        raise Refusal(f"there is no notebook {path}")
    try:
        found = papermill.inspect_notebook(str(path))
    except Exception as error:
        raise Refusal(f"{path} cannot be read as a notebook: {error}; save it again from JupyterLab") from error
    return {name: _parameter(path.name, facts) for name, facts in found.items()}


def smoke_values(notebook: str | Path) -> dict[str, Any]:
    """The values with which a notebook runs quickly."""
    return {name: known.smoke for name, known in parameters(notebook).items()}


def checked_values(notebook: str | Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, if the notebook knows every name and all types and bounds fit; else a Refusal that says what does."""
    known = parameters(notebook)
    for name, value in values.items():
        if name not in known:
            raise Refusal(f"{Path(notebook).name} has no parameter {name!r}; it has: {', '.join(known) or 'none'}")
        kind = known[name].kind
        if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
            raise Refusal(f"the parameter {name} of {Path(notebook).name} is of type {kind}, got {shown(value)}")
        if not known[name].allows(value):
            raise Refusal(f"the parameter {name} of {Path(notebook).name} is a number {known[name].bounds}, got"
                          f" {shown(value)}")
    return dict(values)


def failed_in(error: Any, name: str, kept: Path) -> NotebookError:
    """Which cell of the notebook with this name failed, and why, in a line of bearable length."""
    refused = error.ename == "Refusal"
    why = one_line(error.evalue if refused else f"{error.ename}: {error.evalue}")
    said = why if len(why) <= SHOWN else f"{why[:SHOWN]}..."
    kind, did = (CellRefusal, "refused") if refused else (NotebookError, "failed")
    return kind(f"{name} {did} in cell {error.cell_index}: {said} (kept in {kept})")


def run_notebook(notebook: str | Path, output: str | Path, values: Mapping[str, Any] | None = None, *,
                 env: Mapping[str, str] | None = None, cell_seconds: int = 600, progress: bool = False,
                 echo: TextIO | None = None, kernels: list[Any] | None = None, fork: bool = False) -> NotebookRun:
    """Executes a notebook with these parameters and writes it, outputs included, to `output`.

    `env` is set for the kernel, `cell_seconds` bounds every cell, `progress` shows a bar with an estimate of what is
    left, `echo` gets what the cells print while they print it, `kernels` the kernel. `fork` lets the kernels of all
    such calls share their imports, where the system can (`forked_kernels`). Raises Refusal before anything
    runs, and NotebookError, one of which is CellRefusal, if a cell fails; then the output so far is kept. An
    interrupted or killed run leaves an older output as it was.
    """
    from papermill.exceptions import PapermillExecutionError

    given, failed = checked_values(notebook, values or {}), list[Exception]()

    def execute(rough: Path) -> None:
        try:
            execute_in_thread(str(notebook), str(rough), given, kernels, fork, progress_bar=progress,
                              execution_timeout=cell_seconds, stdout_file=echo, stderr_file=echo)
        except Exception as error:
            failed.append(error)
            if why_full(error):
                raise
            if not rough.exists():                 # it never began: the notebook itself is kept
                shutil.copyfile(notebook, rough)

    output = Path(output).absolute()               # papermill writes from the notebook's folder
    output.parent.mkdir(parents=True, exist_ok=True)
    start = perf_counter()
    try:
        with environment(env or {}):
            write_atomically(output, execute)
        for error in failed:
            raise error
    except PapermillExecutionError as error:
        raise failed_in(error, Path(notebook).name, output) from error
    except Refusal:
        raise
    except Exception as error:                     # a cell over its time, a kernel that died or never came up
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise NotebookError(f"{Path(notebook).name} did not finish: {said[0]} (kept in {output})") from error
    return NotebookRun(output, perf_counter() - start)


def execute_in_thread(notebook: str, output: str, values: Mapping[str, Any], kernels: list[Any] | None = None,
                      fork: bool = False, **how: Any) -> None:
    """Has papermill execute the notebook in a thread, where Ctrl-C does not reach it; Ctrl-C then ends its kernel.

    The kernel runs in the notebook's folder. papermill's own `cwd` would move this process, and with it every thread.
    """
    import papermill
    import zmq
    from jupyter_client.manager import AsyncKernelManager

    from specdec_lib.commands.forked_kernels import ForkedProvisioner

    held: list[Any] = [] if kernels is None else kernels
    notebook = os.path.abspath(notebook)
    folder = os.path.dirname(notebook)

    class HeldKernel(AsyncKernelManager):
        def __init__(self, *words: Any, **more: Any):
            super().__init__(*words, **more)
            if self.has_trait("transport_encryption") and zmq.has("curve"):
                self.transport_encryption = "auto"     # else every kernel warns on the terminal that it has none
            held.append(self)

        async def start_kernel(self, **more: Any) -> None:
            if fork and self.provisioner is None:
                self.kernel_id = self.kernel_id or uuid4().hex
                self.provisioner = ForkedProvisioner(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec,
                                                     parent=self)
            said = [*(more.pop("extra_arguments", None) or []), QUIET]
            await super().start_kernel(**{"cwd": folder, **more, "extra_arguments": said})

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(papermill.execute_notebook, notebook, output, dict(values),
                              kernel_manager_class=HeldKernel, **how)
        try:
            running.result()
        except KeyboardInterrupt:
            end_kernels(held, [running])
            raise


def end_kernels(kernels: Sequence[Any], running: Sequence[Future]) -> None:
    """Ends these kernels, also one that is about to start, until all have ended that wait for them."""
    logging.disable(logging.ERROR)                 # that a kernel died is no news
    while not all(one.done() for one in running):
        for kernel in list(kernels):
            process = getattr(kernel.provisioner, "process", None)
            if process is not None:
                process.kill()
        wait(running, 0.1)
    logging.disable(logging.NOTSET)


def export_env(explore: str = "html") -> dict[str, str]:
    """The kernel's variables with which figures and sliders work in an exported page without a network."""
    return {"PLOTLY_RENDERER": "plotly_mimetype", "SPECDEC_EXPLORE": explore}


def _parameter(notebook: str, facts: Mapping[str, str]) -> Parameter:
    """One parameter from what papermill found: its name, its type, its default and the comment as `help`."""
    name, kind, comment = facts["name"], facts["inferred_type_name"], facts.get("help") or ""
    if kind not in KINDS:
        raise Refusal(f"{notebook}: the parameter {name} needs a type out of {', '.join(KINDS)}, got {kind}")
    parts = [part.strip() for part in comment.split("|")]
    smoke = next((part for part in parts if part.startswith("smoke:")), "")
    meaning, *bounds = [part for part in parts if part != smoke] or [""]
    if not smoke or not meaning or len(bounds) > 1 or any(not BOUNDS.fullmatch(one) for one in bounds):
        raise Refusal(f"{notebook}: the comment of {name} must read '# meaning | smoke: value', or '# meaning | from 1"
                      f" | smoke: value', got {comment!r}")
    try:
        default = ast.literal_eval(facts["default"])
        quick = ast.literal_eval(smoke.removeprefix("smoke:").strip())
    except (SyntaxError, ValueError) as error:
        raise Refusal(f"{notebook}: the values of {name} must be plain Python literals") from error
    return Parameter(name, kind, default, quick, meaning, *bounds)


@contextmanager
def environment(extra: Mapping[str, str]) -> Iterator[None]:
    """Sets these variables inside the block: a kernel inherits them."""
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
