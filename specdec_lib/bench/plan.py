"""The plan of a run as plain data: checked before any model is loaded, and compared when a run is resumed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from specdec_lib import catalog
from specdec_lib.batches.supported import refuse_unbatched
from specdec_lib.bench import peers as peer
from specdec_lib.bench.provenance import without_folders
from specdec_lib.hub.chat_settings import ChatSettings, chat_settings
from specdec_lib.sampling import Sampling
from specdec_lib.schedules.workers import INLINE
from specdec_lib.specs import MethodSpec
from specdec_lib.types import Refusal

REPORT_METHODS = ("ar", "prompt-lookup", "sam", "token-recycling", "sam+token-recycling", "draft-model", "eagle2",
                  "respec", "diffuspec")
REPORT_PEERS = ("hf-generate", "hf-prompt-lookup")
MOST = 256                                         # sequences of a batch
SEEDS = 2 ** 63                                    # torch takes no larger ones
FILE, SHUFFLED = ORDERS = ("file", "shuffled")     # orders of a stream's prompts
USUAL = {"orders": [FILE], "workers": INLINE, "batch": 1, "top_k": 0, "top_p": 1}         # not written in a plan


@dataclass(frozen=True)
class Plan:
    """The settings of a bench run. Plain decoding always runs: it is the baseline."""

    methods: tuple[MethodSpec, ...]                # texts are parsed here, once
    peers: tuple[str, ...] = ()
    prompts: str = ""                              # the file's name
    sha256: str = ""                               # of that file
    limit: int | None = None                       # prompts, spread evenly over the families; None = all
    target: str = ""
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    max_new_tokens: int = 128
    repeats: int = 1
    temperature: float = 0.0
    seed: int = 0
    store: str | None = None
    draft: str | None = None
    cost: str | None = None                        # a saved curve; None = measured at the start
    checkpoints: Mapping[str, str] | None = None   # of the methods: name -> sha256 of its weights
    orders: tuple[str, ...] = (FILE,)              # one stream each, for methods that learn across prompts
    diffusion: str | None = None                   # a pretrained model instead of `diffusion-lm`
    eagle: str | None = None                       # a published head instead of `eagle`
    dflash: str | None = None                      # a published drafter instead of `block-diffusion`
    left_out: tuple[str, ...] = ()                 # default methods that the target cannot run
    workers: str = INLINE                          # where methods that overlap draft: schedules.workers.KINDS
    batch: int = 1                                 # sequences that share each forward of the target
    top_k: int = 0                                 # 0 = all tokens
    top_p: float = 1.0
    system: str | None = None                      # a system turn before every prompt
    template_switches: tuple[str, ...] = ()        # NAME=VALUE for the chat template

    def __post_init__(self):
        if self.max_new_tokens < 1:
            raise Refusal(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if self.repeats < 1:
            raise Refusal(f"repeats must be at least 1, got {self.repeats}")
        if self.limit is not None and self.limit < 1:
            raise Refusal(f"a limit of {self.limit} prompts leaves nothing to run: give 1 or more")
        check_threads(self.threads)
        if abs(self.seed) >= SEEDS:
            raise Refusal(f"a seed is a whole number of at most 63 bits, got {self.seed}")
        object.__setattr__(self, "methods", tuple(map(catalog.method_spec, self.methods)))
        texts = tuple(map(str, self.methods))
        for kind, names in (("method", texts), ("peer", self.peers), ("order", self.orders)):
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise Refusal(f"the {kind} {twice[0]} is named twice: name it once")
        learning = [spec for spec in self.methods if catalog.card_of(spec).learns_across_prompts]
        if not self.orders or not set(self.orders) <= set(ORDERS):
            raise Refusal(f"orders of the prompts are {' and '.join(ORDERS)}: give one of them or both, got"
                          f" {', '.join(self.orders) or 'none'}")
        if SHUFFLED in self.orders and not learning:
            raise Refusal("a shuffled order is for methods that learn across prompts, and none of these does: name one,"
                          " such as respec+memory, or leave --orders out")
        self.check_batch()
        peer.check_peers(self.peers, self.draft, self.target, self.temperature)
        Sampling(self.temperature, self.top_k, self.top_p)
        chat_settings(self.system, self.template_switches)
        if not self.temperature and (self.top_k, self.top_p) != (0, 1):
            raise Refusal("top_k and top_p are for sampling, and at temperature 0 nothing is sampled: give a"
                          " --temperature too, or leave them out")
        if "ar" not in texts:
            object.__setattr__(self, "methods", (catalog.method_spec("ar"), *self.methods))

    def check_batch(self) -> None:
        """Refuses a batch of no sequence or too many, and what cannot run in one."""
        if not 1 <= self.batch <= MOST:
            raise Refusal(f"a batch holds at least 1 and at most {MOST} sequences, got {self.batch}")
        alone = [name for name in self.peers if name not in peer.OF_SEQ2SEQ]
        if self.batch > 1 and alone:
            raise Refusal(f"peers run one prompt at a time: leave {alone[0]} out, or take --batch 1")
        for spec in self.methods if self.batch > 1 else ():
            refuse_unbatched(spec)

    @property
    def sampling(self) -> Sampling | None:
        """None is greedy."""
        return Sampling(self.temperature, self.top_k, self.top_p) if self.temperature else None

    @property
    def chat(self) -> ChatSettings:
        """What all conversations have in common."""
        return chat_settings(self.system, self.template_switches)

    def as_dict(self) -> dict:
        """The plan for JSON: paths cut to names. Settings that older runs lack are left out at their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain: dict[str, Any] = {name: list(value) if isinstance(value, tuple) else value
                                 for name, value in values.items()}
        plain["methods"] = [*map(str, self.methods)]
        for name, usual in USUAL.items():
            if plain[name] == usual:
                del plain[name]
        for name in ("diffusion", "eagle", "dflash", "left_out", "system", "template_switches"):
            if not plain[name]:
                del plain[name]
        paths = ("target", "draft", "store", "cost", "diffusion", "eagle", "dflash")
        return plain | {name: without_folders(plain[name]) for name in paths if plain.get(name)}


def check_threads(threads: int | None) -> None:
    """Refuses a number of threads that torch cannot start: far too many end the process without a word."""
    most = max(64, 4 * (os.cpu_count() or 1))
    if threads is not None and not 1 <= threads <= most:
        raise Refusal(f"threads must be at least 1 and at most {most} on this machine, got {threads}")


def changed_settings(one: Mapping, two: Mapping, of: str = "") -> list[str]:
    """Settings that differ between two plans as dicts, as phrases; of a setting with parts, those that differ."""
    out = []
    for name in {**one, **two}:
        left, right = (side.get(name, USUAL.get(name)) for side in (one, two))
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            out += changed_settings(left, right, f" of {name}")
        elif left != right:
            out.append(f"{name}{of} is {left!r} there and {right!r} here")
    return out
