"""Loading a language model from a folder: our own decoder for the Llama family, else transformers'."""

from __future__ import annotations

from math import inf, prod
from pathlib import Path
from typing import Literal

import torch

from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.config import UnsupportedConfig, config_of
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.dense_linear import dense_code
from specdec_lib.models.llama.families import is_wrapped, text_name
from specdec_lib.models.llama.four_bit_weights import INT4, Dtype, refuse_device
from specdec_lib.models.llama.packed_linear import bfloat16_is_fast
from specdec_lib.models.llama.weights import read_config, tensor_sizes
from specdec_lib.models.threads import for_model
from specdec_lib.types import LM, Draft, Refusal

SPARE = 1.15                                       # times the weights: packing and caches need memory, too


def load(name: str = "smollm2-135m", dtype: Dtype | Literal["auto"] = "auto",
         device: str = "auto") -> tuple[LM, Tokenizer]:
    """A model and its tokenizer by name: the default target, a local folder, or a hub name."""
    from specdec_lib.hub.locate import model_folder

    folder = model_folder(name)
    return load_lm(folder, dtype, device), Tokenizer(folder)


def load_lm(folder: str | Path, dtype: Dtype | Literal["auto"] = "auto", device: str = "auto",
            threads: int | None = None) -> LM:
    """The model in a folder. Refusal where its weights are missing, corrupt, or larger than the free memory.

    "int4" is for our own decoder on the CPU alone (`models/llama/four_bit_weights.py`).
    """
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    refuse_missing(device)
    dtype = dtype_for(Path(folder), device) if dtype == "auto" else dtype
    if isinstance(dtype, str) and dtype != INT4:
        raise Refusal(f"no weights are loaded in {dtype!r}: give a dtype of torch, such as torch.bfloat16, or {INT4!r}")
    if dtype == INT4:
        refuse_device(device)
    for_model(threads)
    if device.startswith("cuda"):
        torch.cuda.set_device(device if ":" in device else torch.cuda.current_device())      # streams are made there
        torch.backends.cuda.enable_cudnn_sdp(False)              # it plans every new shape anew, for 0.1 s and more
    refuse_too_large(Path(folder), dtype, device)
    try:
        lm: LM = Transformer.load(folder, dtype, device)
    except UnsupportedConfig as why:
        from specdec_lib.models.huggingface import HuggingFace

        if isinstance(dtype, str):
            raise Refusal(f"--dtype int4 is for models that our own decoder runs, and {why}: take --dtype bfloat16"
                          ) from None
        lm = HuggingFace.load(folder, dtype, device, why=str(why))
    refuse_without_numbers(lm, Path(folder).name, str(dtype).removeprefix("torch."))
    return lm


def refuse_missing(device: str) -> None:
    """Raises Refusal for a CUDA device that this machine, its driver or this build of torch does not have."""
    if not device.startswith("cuda"):
        return
    if not torch.cuda.is_available():
        raise Refusal(f"{why_no_cuda()}: take --device cpu")
    number, count = device.partition(":")[2], torch.cuda.device_count()
    if number and not (number.isdecimal() and int(number) < count):
        raise Refusal(f"there is no device {device}, this machine has {count}: take cuda:0 to cuda:{count - 1}")


def why_no_cuda() -> str:
    """What torch says when it is asked for CUDA and has none."""
    try:
        torch.cuda.init()
    except AssertionError:
        return f"this machine has no CUDA device for this build of torch, {torch.__version__}"
    except RuntimeError as error:
        if "too old" in str(error):
            return "the driver of the GPU is older than this build of torch needs, update it"
    return "this machine has no CUDA device"


def refuse_without_numbers(lm: LM, name: str, dtype: str) -> None:
    """Raises Refusal where one forward gives logits that are no numbers: nothing can be decoded or measured then."""
    if not lm.fresh()((0,), Draft()).row_stats((0,)).lse[0] < inf:
        raise Refusal(f"the logits of {name} in {dtype} are not numbers (NaN or infinite): its weights are damaged or"
                      " too large for the dtype, fetch the model again or take --dtype float32")


def default_dtype(device: str) -> torch.dtype:
    """In what models decode by default: bfloat16 on a CPU where our own linear layers compile, else `torchs_dtype`.

    On a processor without bfloat16 kernels ours emulate them, and read half the bytes of float32.
    """
    ours = not device.startswith("cuda") and dense_code(torch.bfloat16) is not None
    return torch.bfloat16 if ours else torchs_dtype(device)


def dtype_for(folder: Path | None, device: str) -> torch.dtype:
    """In what the model in this folder decodes by default: `torchs_dtype` where transformers runs it.

    None, and a folder that holds no model, have the default of our own decoder.
    """
    try:
        if folder is not None:
            config_of(read_config(folder))
    except UnsupportedConfig:
        return torchs_dtype(device)
    except Refusal:                                # said by whoever loads it
        pass
    return default_dtype(device)


def torchs_dtype(device: str) -> torch.dtype:
    """bfloat16 where torch has fast kernels for it on this device, else float16 on CUDA and float32 on a CPU."""
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.bfloat16 if bfloat16_is_fast() else torch.float32


def refuse_too_large(folder: Path, dtype: Dtype, device: str) -> None:
    """Raises Refusal where the weights do not fit into the free memory."""
    kept = parameter_count(folder) + (tied_output(folder) if device == "cpu" else 0)
    need = SPARE * kept * (1 if isinstance(dtype, str) else dtype.itemsize)
    free = free_memory(device)
    if free is not None and need > free:
        gib = 2 ** 30
        raise Refusal(f"{folder.name} needs about {need / gib:.1f} GiB on {device} and {free / gib:.1f} GiB are free: "
                      "take a smaller model, a narrower --dtype, or another --device")


def parameter_count(folder: Path) -> int:
    """How many numbers the checkpoint holds, read from the headers of its files; those of text alone, beside images."""
    whole = not is_wrapped(read_config(folder))
    return sum(prod(size) for name, size in tensor_sizes(folder).items() if whole or text_name(name))


def tied_output(folder: Path) -> int:
    """How many numbers our decoder keeps twice on a CPU: an embedding that is also the output matrix, there packed."""
    try:
        shape = config_of(read_config(folder))
    except Refusal:                                # run by transformers, or said by whoever loads it
        return 0
    return shape.vocab * shape.hidden if shape.tied else 0


def free_memory(device: str) -> int | None:
    """Free bytes on this device; None where the system does not say."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
