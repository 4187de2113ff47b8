"""The environment of a run: from names and flags to loaded models, tokenizer and peers, or one Refusal."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch

from specdec_lib import catalog
from specdec_lib.bench import diffusion_source as diffuser
from specdec_lib.bench import draft_source, peers, published_source
from specdec_lib.bench.draft_source import DraftSource
from specdec_lib.bench.llama_cpp_peer import LlamaCpp
from specdec_lib.bench.peers import Peer
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.provenance import without_folders
from specdec_lib.bench.seq2seq_environment import is_seq2seq, parts_of_environment, refuse_for_seq2seq
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.cost import curves
from specdec_lib.heads.drafter_linear import uses_codes
from specdec_lib.hub import locate
from specdec_lib.hub.chat_settings import USUAL, ChatSettings
from specdec_lib.hub.chat_template import Message
from specdec_lib.hub.checksum import folder_sha256
from specdec_lib.hub.default_model import NAME as DEFAULT
from specdec_lib.hub.load import default_dtype, dtype_for, load_lm, refuse_missing, torchs_dtype
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.loop import begin, why_context
from specdec_lib.models.llama.four_bit_weights import INT4, NARROW, Dtype, refuse_device
from specdec_lib.models.threads import for_model
from specdec_lib.sampling import Sampling
from specdec_lib.types import LM, Refusal, Session, SourceLM

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHORT = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
CODES = "8-bit codes"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Environment:
    """All that a run needs, loaded; `encode` turns a conversation into ids, `decode` turns ids into text."""

    target: LM
    encode: Callable[[Sequence[Message]], tuple[int, ...]]
    decode: Callable[[Sequence[int]], str]
    stream: Callable[[], Any]                      # a new incremental decoder: push(ids), finish()
    facts: TokenizerFacts = field(default_factory=TokenizerFacts)
    draft: LM | None = None
    checkpoints: Mapping = field(default_factory=dict)
    peers: tuple[Peer | LlamaCpp, ...] = ()
    about: Mapping = field(default_factory=dict)   # the target, as a summary names it
    name: Callable[[int], str] = "{}".format       # the text of one token alone, control tokens by their name
    drafter: DraftSource = field(default_factory=DraftSource)      # where `draft` comes from
    warm_up: tuple[str, ...] = ()                  # prompts for it, where the usual ones do not suit the target
    quality: Callable[[Sequence[Any], Sequence[Any]], Mapping] | None = None      # of (prompts, decodes), for summaries
    loaded: Callable[[], Mapping[str, str]] = dict        # all that was read so far -> SHA-256; models by their option

    def kit(self, plan: Plan, curve: curves.CostCurve | None, memory: dict | None = None) -> Kit:
        """A kit for one decode: fresh caches, no index yet."""
        return Kit(target=self.target.fresh(), facts=self.facts, sampling=plan.sampling, cost=curve,
                   nodes=curves.node_budget(curve), price=curves.step_price(curve),
                   draft=self.draft and self.draft.fresh(),
                   store=plan.store, checkpoints=self.checkpoints, memory={} if memory is None else memory,
                   parts=catalog.make_part, workers=plan.workers)

    def begin(self, plan: Plan, curve: curves.CostCurve | None, ids: Sequence[int], id: str,
              memory: dict | None = None) -> tuple[Kit, Session]:
        """The kit of one decode and its session before the first round; `ids` are the prompt.

        For an encoder-decoder they are its source: the kit's target is bound to it, and the session begins with the
        target's start. Raises Refusal as `loop.begin` does.
        """
        kit = self.kit(plan, curve, memory)
        if not hasattr(kit.target, "bound"):
            return kit, begin(ids, plan.max_new_tokens, self.facts.end, plan.sampling, id, kit.target.context,
                              why=why_context(kit.target))
        reader = cast(SourceLM, kit.target)
        kit = replace(kit, target=reader.bound(ids))
        return kit, begin(reader.start, plan.max_new_tokens, self.facts.end, plan.sampling, id, kit.target.context, ids)


def device_of(name: str) -> str:
    """`auto` is the GPU where there is one; Refusal for a device this machine does not have."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and name.partition(":")[0] != "cuda":
        raise Refusal(f"there is no device named {name!r}: take auto, cpu or cuda")
    refuse_missing(name)
    return name


def dtype_of(name: str, device: str, four_bit: bool = False, target: str = DEFAULT) -> str:
    """The dtype's full name; `auto` is what `hub.load.dtype_for` takes for this target. `four_bit` allows int4."""
    if name == "auto":
        folder = None if target == DEFAULT else locate.folder_at_hand(target) or locate.model_folder(target)
        return str(dtype_for(folder, device)).removeprefix("torch.")
    if name == INT4:
        refuse_device(device)
        if not four_bit:
            raise Refusal("--dtype int4 is for decoding with a language model, and not for training, for break-even"
                          " points, and for the pronunciation target: take another dtype here")
        return name
    if SHORT.get(name, name) not in DTYPES:
        raise Refusal(f"there is no dtype named {name!r}: take auto, {', '.join(DTYPES)}, {INT4}")
    return SHORT.get(name, name)


def weights_dtype(name: str) -> Dtype:
    """The dtype of a target's weights by its full name."""
    return "int4" if name == INT4 else DTYPES[name]


def other_dtype(name: str) -> torch.dtype:
    """The dtype of all other models of a run: beside a target in 4 bits that which `auto` takes on the CPU."""
    return default_dtype("cpu") if name == INT4 else DTYPES[name]


def dtype_beside(folder: Path, dtype: torch.dtype, device: str) -> torch.dtype:
    """The dtype of a draft model beside a target of this dtype: where transformers runs it, one that is fast there."""
    slow = dtype == torch.bfloat16 and device == "cpu"
    return dtype_for(folder, device) if slow else dtype


def load_beside(folder: Path, dtype: torch.dtype, device: str, threads: int | None) -> LM:
    """The draft model in this folder, for a target of this dtype."""
    return load_lm(folder, dtype_beside(folder, dtype, device), device, threads)


def bit_facts(lm: LM | None) -> dict[str, bool]:
    """Whether rows of this model are batch invariant, and whether its attention is compiled."""
    return {name: getattr(lm, name, False) for name in ("batch_invariant", "compiled_attention")}


def weights_of_drafters(device: str, dtype: str) -> str:
    """In what trained drafters keep their weights beside a target of this device and dtype."""
    return CODES if uses_codes(torch.device(device), NARROW if dtype == INT4 else DTYPES[dtype]) else dtype


def transformers_dtype(name: str, device: str) -> torch.dtype:
    """The dtype of transformers' peers beside a target of this dtype: its own, or on a CPU that in which torch is fast.

    Without bfloat16 kernels of torch they read prompts and drafts sooner in float32.
    """
    other = other_dtype(name)
    return torchs_dtype(device) if other == torch.bfloat16 and device == "cpu" else other


def peer_facts(dtype: str, device: str, peer_names: Sequence[str]) -> dict[str, str]:
    """The dtype of transformers' peers where it is not the target's; llama.cpp has the GGUF itself."""
    taken = str(transformers_dtype(dtype, device)).removeprefix("torch.")
    there = any(name.startswith("hf-") for name in peer_names)
    return {"dtype_of_transformers": taken} if there and taken != dtype else {}


def four_bit_facts(lm: LM) -> dict[str, str]:
    """Whose codes a target in 4 bits has, and the dtype of other models; else nothing."""
    codes = getattr(getattr(lm, "weights", None), "four_bit", None)
    dtype = str(other_dtype(INT4)).removeprefix("torch.")
    return {} if codes is None else {"four_bit_weights": codes, "dtype_of_other_models": dtype}


def open_environment(target: str, device: str, dtype: str, threads: int | None = None, draft: str | None = None,
                     peer_names: tuple[str, ...] = (), sampling: Sampling | None = None, say: Say = lambda line: None,
                     shelf: Path = SHIPPED, drafts: bool = True, diffusion: str | None = None,
                     published: Mapping[str, str] | None = None, chat: ChatSettings = USUAL) -> Environment:
    """Loads everything but checkpoints, which load on first use; device and dtype are resolved names.

    Without `drafts`, a draft model is loaded only if it is named. `diffusion` names a pretrained model that replaces
    the trained `diffusion-lm`, `published` others by kind (`published_source.py`); `chat` holds for every
    conversation. Raises Refusal if a part is missing or does not fit.
    """
    published = published or {}
    if is_seq2seq(target):
        refuse_for_seq2seq({"draft": draft, "diffusion": diffusion, **published}, chat)
        say(f"loading {target}")
        for_model(threads)
        about = {"name": target, "device": device, "dtype": dtype, "threads": threads, **bit_facts(None)}
        return Environment(**parts_of_environment(device, DTYPES[dtype], about, peer_names, sampling, shelf, say))
    folder = locate.model_folder(target, say)
    text = Tokenizer(folder, say, chat)
    beside, diffusing = draft_source.draft_folder(draft, text, say), diffuser.find_diffusion(diffusion, text, say)
    folders = published_source.find_published(published, say)
    say(f"loading {without_folders(target)}")
    lm, other = load_lm(folder, weights_dtype(dtype), device, threads), other_dtype(dtype)
    if codes := four_bit_facts(lm):
        say(f"4-bit weights: {codes['four_bit_weights']}; trained drafters have {weights_of_drafters(device, dtype)},"
            f" other models {codes['dtype_of_other_models']}")
    trained = CheckpointFolder(shelf, lm, text, target, say, {"ngram": read_ngram})
    small = DraftSource()
    if beside is not None and draft is not None:
        small = draft_source.checked_draft(load_beside(beside, other, device, threads), lm, text, draft)
    elif drafts or draft is not None:
        small = draft_source.choose_draft(draft, lm, trained, say)
    models = {"--target": folder, "--draft": beside, "--diffusion": diffusing and diffusing[0],
              **{f"--{kind}": path for kind, path in folders.items()}}
    given = published_source.load_published(published, folders, lm, say)
    if diffusing is not None and diffusion is not None:
        given[diffuser.STANDS_FOR] = diffuser.load_diffusion(diffusion, diffusing, text, lm, other, device, say)
    others = peers.load_peers(peer_names, str(folder), transformers_dtype(dtype, device), device, text.facts.end,
                              lm.context, sampling, beside and str(beside), threads=threads)
    about = {"name": without_folders(target), "device": device, "dtype": dtype, "threads": threads,
             **bit_facts(lm), "weights_of_drafters": weights_of_drafters(device, dtype), **codes,
             **peer_facts(dtype, device, peer_names)}
    both = ChainMap(given, trained) if given else trained        # pyright: ignore[reportArgumentType]  only read
    return Environment(lm, text.encode_chat, text.decode, text.stream, text.facts, small.lm, both, others, about,
                       text.name, small, loaded=lambda: checksums_of(models) | trained.checksums())


def checksums_of(models: Mapping[str, Path | None]) -> dict[str, str]:
    """The SHA-256 of each of these models that has a folder."""
    return {name: folder_sha256(folder) for name, folder in models.items() if folder is not None}


def read_ngram(file: Path):
    """The n-gram table in a file."""
    from specdec_lib.models.ngram import Ngram

    return Ngram.load(file)
