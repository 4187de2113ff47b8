"""What this machine is and what is installed, as plain data; nothing is fetched, trained or kept.

The bandwidth is measured, by reading a block that no cache holds. The plain speed is predicted from it: bytes a second
over the bytes of weights that one forward reads. Computing takes time besides, and a large cache may save some reading.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from packaging.requirements import Requirement

from specdec_lib.bench.gpu_cells import bytes_read
from specdec_lib.bench.plan import check_threads
from specdec_lib.bench.provenance import machine, versions, without_folders
from specdec_lib.checkpoints.card import checkpoint_names
from specdec_lib.files import cache_home
from specdec_lib.hub.default_model import SHA256
from specdec_lib.hub.load import dtype_for, free_memory, parameter_count
from specdec_lib.hub.locate import DEFAULT, is_model_folder, path_of, refuse_no_folder
from specdec_lib.models.llama.compiled import find_compiler
from specdec_lib.models.llama.config import LlamaConfig, UnsupportedConfig, config_of
from specdec_lib.models.llama.dense_linear import dense_code
from specdec_lib.models.llama.four_bit_linear import compiled_with, tile_name
from specdec_lib.models.llama.four_bit_weights import NARROW
from specdec_lib.models.llama.invariant_attention import Layout
from specdec_lib.models.llama.kernels import layout_for
from specdec_lib.models.llama.packed_linear import packs_dtype
from specdec_lib.models.llama.path_attention import PathAttention
from specdec_lib.models.llama.weights import read_config
from specdec_lib.types import Refusal

BLOCK = 2 ** 28                                    # bytes that are read at a time, more than a cache holds
FLAGS = {"avx2": "avx2", "avx512": "avx512f", "avx512_bf16": "avx512_bf16", "amx": "amx_tile"}
PACKAGE = "specdec-lib"


def diagnosis(target: str, shelf: Path, threads: int | None = None, seconds: float = 2.0) -> dict[str, Any]:
    """All facts; the bandwidth is measured for about so many seconds, and for 0 not at all.

    Refusal for seconds below 0 or above a minute, and for a folder that holds no model.
    """
    check_threads(threads)
    if not 0 <= seconds <= 60:
        raise Refusal(f"the bandwidth is measured for 0 to 60 seconds, got {seconds}")
    if threads is not None:
        torch.set_num_threads(threads)
    here, device = machine(), "cuda" if torch.cuda.is_available() else "cpu"
    dtype = dtype_for(None if target == DEFAULT else path_of(target), device)
    model = model_facts(target, dtype, device)
    measured = bandwidth(torch.device(device), seconds)
    allowed = None if measured is None or not model["bytes_per_forward"] else measured / model["bytes_per_forward"]
    return {"machine": {**here, "device": device, "dtype": str(dtype).removeprefix("torch."),
                        "instructions": instructions(), "compiler": compiler(),
                        "four_bit_tile": four_bit_tile(),
                        "free_memory_gib": gib(free_memory(device)), "gpu_present": Path("/dev/nvidia0").exists()},
            "installed": {"versions": versions(), "missing": missing_packages(), "model": model,
                          "checkpoints": checkpoint_names(shelf)},
            "measured": {"bytes_per_second": measured, "seconds": seconds},
            "predicted": {"plain_tokens_per_second": allowed}}


def bandwidth(device: torch.device, seconds: float) -> float | None:
    """Bytes a second that this device reads from its memory, the best of the passes; None for no time or no memory."""
    free = free_memory(str(device))
    size = min(BLOCK, (free or 4 * BLOCK) // 4) // 4 if seconds else 0
    if size < 2 ** 16:
        return None
    block, best = torch.ones(size, device=device), float("inf")
    end = perf_counter() + seconds
    while True:
        start = perf_counter()
        float(block.sum())                         # on the host: on a GPU the clock stops when the work is done
        best = min(best, perf_counter() - start)
        if perf_counter() >= end:
            return 4 * size / best


def model_facts(target: str, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """What is known of the target without loading it, `four_bit` for int4; a hub name is not looked up."""
    default = target == DEFAULT
    folder = cache_home() / f"{DEFAULT}-{SHA256[:8]}" if default else path_of(target)
    facts: dict[str, Any] = {"name": without_folders(target), "present": False, "parameters": None, "decoder": None,
                             "bytes_per_forward": None, "batch_invariant": None, "compiled_attention": None,
                             "four_bit": None}
    if not (folder / "manifest.json" if default else folder).exists():
        refuse_no_folder(target)
        return facts
    shape = shape_of(is_model_folder(folder))
    facts |= {"present": True, "parameters": parameter_count(folder),
              "decoder": "transformers" if shape is None else "ours"}
    if shape is None:                              # every weight once, which is all that is known of it
        return facts | {"bytes_per_forward": facts["parameters"] * dtype.itemsize, "batch_invariant": False}
    ours = device == "cpu" and dense_code(dtype) is not None
    keeps = ours or device == "cpu" and packs_dtype(dtype)
    codes = bit_facts(layout_for(shape, NARROW, packed=False)) if four_bit_tile() else None
    return facts | {"bytes_per_forward": bytes_read(shape, dtype), "four_bit": codes,
                    **bit_facts(layout_for(shape, dtype, not ours) if keeps else None)}


def bit_facts(layout: Layout | PathAttention | None) -> dict[str, bool]:
    """Whether rows are batch invariant with this attention, and whether it is compiled."""
    return {"batch_invariant": layout is not None, "compiled_attention": isinstance(layout, PathAttention)}


def shape_of(folder: Path) -> LlamaConfig | None:
    """The shape for our own decoder; None for a model that transformers runs."""
    try:
        return config_of(read_config(folder))
    except UnsupportedConfig:
        return None


def instructions() -> dict[str, bool] | None:
    """Which vector instructions the processor has; None where the system does not say."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), None)
    return None if flags is None else {name: flag in flags for name, flag in FLAGS.items()}


def compiler() -> str | None:
    """The C compiler that attention is compiled with."""
    found = find_compiler()
    return None if found is None else Path(found[0]).name


def four_bit_tile() -> str | None:
    """The instructions that 4-bit weights are multiplied with; None where the C code does not compile."""
    code = compiled_with()
    return None if code is None else tile_name(code)


def missing_packages() -> dict[str, list[str]]:
    """Extra, or "" for what every installation needs -> packages that are missing or out of range."""
    try:
        wanted = [Requirement(text) for text in requires(PACKAGE) or ()]
    except PackageNotFoundError:
        return {"": [PACKAGE]}
    out: dict[str, list[str]] = {}
    for one in wanted:
        extra = str(one.marker).partition("extra == ")[2].strip("\"'") if one.marker else ""
        if not fits(one):
            out.setdefault(extra, []).append(str(one).partition(";")[0].strip())
    return out


def fits(one: Requirement) -> bool:
    """Whether the installed version of a package lies in its range."""
    try:
        return one.specifier.contains(version(one.name), prereleases=True)
    except PackageNotFoundError:
        return False


def gib(size: int | None) -> float | None:
    return None if size is None else round(size / 2 ** 30, 1)
