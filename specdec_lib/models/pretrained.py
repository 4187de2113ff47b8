"""Reading with transformers, in this one place: local files only, and never code that a model's folder brings or names.

Asked nothing, transformers would ask on the terminal whether to run such code.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from specdec_lib.types import Refusal

KERNELS = ("attn_implementation", "_attn_implementation")     # with a slash: a kernel's repository on the hub


def pretrained(kind: str, folder: str | Path, **options) -> Any:
    """What transformers' class `kind`, such as AutoTokenizer, reads from a local folder, without a progress bar.

    Raises Refusal for a config that names code to fetch, and whatever transformers raises for a folder that needs code
    of its own or cannot be read.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    refuse_kernels(Path(folder))
    kinds = import_module("transformers")          # not `import`: a type checker would read all its models
    return getattr(kinds, kind).from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)


def refuse_kernels(folder: Path) -> None:
    """Raises Refusal for a config whose attention is compiled code on the hub: transformers would fetch and run it."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return                                     # transformers says what is wrong with it
    waiting = [config]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += [value for key, value in part.items() if key not in KERNELS]
            named = [name for key in KERNELS for name in texts(part.get(key)) if "/" in name]
            if named:
                raise Refusal(f"{folder / 'config.json'} names code to fetch ({named[0]}), which is never run: "
                              "remove attn_implementation from it")


def texts(value: Any) -> list[str]:
    """The texts in a setting: itself, or the values of a mapping by part of the model."""
    return [one for one in (value.values() if isinstance(value, dict) else [value]) if isinstance(one, str)]
