"""Cards and kits: what a file of a room declares about its part, and what a part may ask for when it is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any, Protocol

from specdec_lib.types import LM

NAME = re.compile(r"[\w.+-]+")                     # what a spec can hold: no blank, comma, bracket or @
FIRST = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


class ForwardCost(Protocol):
    """Seconds of one forward by its width and context, both in tokens, or a multiple of them: a `cost.CostCurve`."""

    def __call__(self, width: float, context: float | None = None) -> float: ...


@dataclass(frozen=True)
class TokenizerFacts:
    """What rules need to know of a tokenizer."""

    end: frozenset[int] = frozenset()
    control: frozenset[int] = frozenset()
    digit: frozenset[int] = frozenset()
    fence: frozenset[int] = frozenset()            # tokens that open or close a code fence
    vocab: int = 0
    context: int | None = None                     # tokens the model can hold; None = not known


@dataclass(frozen=True)
class Kit:
    """What a card may ask for when its part is made, anew for each decode."""

    target: LM
    facts: TokenizerFacts = TokenizerFacts()
    sampling: Any = None
    cost: ForwardCost | None = None                # a cost.CostCurve
    nodes: int = 8                                 # widest draft whose verification costs little, from the curve
    price: float = 0.03                            # what one node more costs, in plain forwards, from the curve
    draft: LM | None = None                        # a smaller model with the same tokenizer
    drafter: str = ""                              # the *what* of the method that is being built, by its card's name
    store: str | None = None                       # a static index on disk
    workers: str = "inline"                        # where a schedule drafts: schedules.workers.KINDS
    beside: bool = False                           # its parts run beside the target, so they share no cache with it
    recording: Any = None                          # models.replay.Recording, for what/recorded
    checkpoints: Mapping[str, Any] = field(default_factory=dict)
    indexes: dict = field(default_factory=dict)    # shared by the parts of one decode
    memory: dict = field(default_factory=dict)     # outlives a prompt
    parts: Callable[..., Any] | None = None        # parts(name, kit, ...): makes a part by its card's name

    def part(self, name: str, **values) -> Any:
        """The part with this card name, made from this very kit."""
        assert self.parts is not None, f"this kit cannot make the part {name}: it has no `parts`"
        return self.parts(name, self, **values)

    def index(self, name: str, make: Callable[[], Any]) -> Any:
        """One shared index per decode, made at first use, so when and what read the same one."""
        if name not in self.indexes:
            self.indexes[name] = make()
        return self.indexes[name]


@dataclass(frozen=True, eq=False)                  # hashed by identity, as a card holds it
class NamedParts:
    """The `named` of a card whose parameters name parts: parameter -> the room that the part must be of."""

    rooms: Mapping[str, str]

    def __call__(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(name for parameter in self.rooms for name in self.given(parameter, values))

    def given(self, parameter: str, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The parts that this parameter names: one, or several where it is a sequence, or a mapping by name."""
        given = values.get(parameter)
        return (given,) if isinstance(given, str) else tuple(given or ())


def naming(**rooms: str) -> NamedParts:
    """The `named` of a card with these parameters, each of which names a part of its room where it is given."""
    return NamedParts(rooms)


@dataclass(frozen=True)
class Card:
    """How the catalogue knows a part or a method; `make(kit, ...named parameters)` builds it."""

    name: str
    idea: str
    source: str
    make: Callable[..., Any]
    lossless: bool = True
    needs: tuple[str, ...] = ()                    # kit fields or checkpoints: "draft", "store", "eagle"
    prefers: tuple[str, ...] = ()                  # checkpoints it takes where they are at hand, and does without
    parts: tuple[str, ...] = ()                    # of an assembled method: the cards it is put together from
    named: Callable[[Mapping[str, Any]], tuple[str, ...]] = naming()     # parameters -> parts and checkpoints in them
    notebook: str = ""
    off_path: bool = False                         # it learns from rejected nodes, so it replays its own run only
    parallel: bool = False                         # a method whose drafter works while the target verifies
    ahead: bool = False                            # a method that drafts after tokens which the target has not read
    reads_states: bool = False                     # a part that reads the target's hidden states up to its draft
    learns_across_prompts: bool = False            # always, or where its parameter `remember` is on

    def __post_init__(self):
        if not (isinstance(self.name, str) and NAME.fullmatch(self.name)):
            raise ValueError(f"a card's name is letters, digits and +-_. without blanks, got {self.name!r}")
        for name in ("idea", "source", "notebook"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is a text, got {getattr(self, name)!r}")
        for name in ("needs", "prefers", "parts"):
            words = getattr(self, name)
            if not (isinstance(words, tuple) and all(isinstance(word, str) for word in words)):
                raise TypeError(f"{name} is a tuple of texts, got {words!r}")
        if not (callable(self.make) and any(word.kind in FIRST for word in signature(self.make).parameters.values())):
            raise TypeError(f"make is a function whose first parameter is the kit, got {self.make!r}")
