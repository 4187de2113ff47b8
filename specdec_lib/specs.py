"""Specs: methods as written on the command line, parsed once into a frozen value.

`sam(mode="first")` names a card and its parameters. What follows an `@` names a *when* or a *how* that replaces the
method's own: `eagle@svip(h=0.3)@typical(eps=0.2)`. Knows no cards: `catalog.method_spec` checks the names.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specdec_lib.types import Refusal

LONGEST = 1000                                     # characters of a spec


class PartSpec(NamedTuple):
    """A card's name and the parameters it is made with."""

    name: str
    values: dict[str, Any]


@dataclass(frozen=True)
class MethodSpec:
    """A method with its parameters, and the parts that replace its own, by room; `text` is how it was written."""

    text: str
    method: PartSpec = field(hash=False)
    replaced: Mapping[str, PartSpec] = field(default_factory=dict, hash=False)       # "when" or "how" -> part

    def __str__(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint that the method's own parameter `weights` names, if it has one."""
        named = self.method.values.get("weights")
        return named if isinstance(named, str) else None


def parse_part(text: str) -> PartSpec:
    """`respec(theta=1.0)` -> ("respec", {"theta": 1.0}); values are Python literals. Refusal for anything else."""
    if len(text) > LONGEST:
        raise Refusal(f"a method is written in at most {LONGEST:,} characters, got {len(text):,}: {text[:40]!r}...")
    name, bracket, inside = text.strip().partition("(")
    if not bracket:
        return PartSpec(name, {})
    try:
        call = ast.parse(f"f({inside}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError
        words = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg is not None}
        if len(words) < len(call.keywords):
            raise ValueError
        return PartSpec(name, words)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:   # ast raises all of them
        short = text if len(text) <= 80 else f"{text[:77]}..."
        raise Refusal(f"{short!r} is not a name with parameters such as sam(mode='first')") from error


def write_part(part: PartSpec) -> str:
    """The text that `parse_part` reads as this part."""
    words = ", ".join(f"{name}={value!r}" for name, value in part.values.items())
    return f"{part.name}({words})" if words else part.name


def split_specs(specs: str) -> list[str]:
    """A comma-separated list of specs; commas inside brackets or quotes stay."""
    out, depth, quote, escaped = [""], 0, "", False
    for letter in specs:
        if letter == "," and depth == 0 and not quote:
            out.append("")
            continue
        out[-1] += letter
        if escaped or (quote and letter == "\\"):
            escaped = not escaped
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
    return [spec.strip() for spec in out if spec.strip()]
