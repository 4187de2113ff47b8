"""What all conversations of a run have in common: a system turn, and the switches of their chat template.

Knows neither tokenizers nor templates; `hub/tokenizer.py` writes conversations with these settings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec_lib.files import broken_unicode
from specdec_lib.types import Refusal

OURS = {"messages", "add_generation_prompt", "continue_final_message", "chat_template", "conversation", "documents",
        "padding", "tokenize", "tokenizer_kwargs", "tools", "truncation", "max_length", "return_assistant_tokens_mask",
        "return_dict", "return_tensors"}           # what transformers, or this package, gives a template itself
WORDS = {"true": True, "false": False, "none": None, "null": None}


@dataclass(frozen=True)
class ChatSettings:
    """A system turn before the user's first, None for the template's own, and values that a template reads by name."""

    system: str | None = None
    switches: dict[str, Any] = field(default_factory=dict)


USUAL = ChatSettings()


def chat_settings(system: str | None, switches: Sequence[str]) -> ChatSettings:
    """The settings that these words ask for, each switch as NAME=VALUE. Refusal for the first that is wrong."""
    if system is not None and (not system.strip() or broken_unicode(system)):
        raise Refusal("--system is the text of a system turn, and this one is empty or no whole text: leave it out for"
                      " the chat template's own")
    found: dict[str, Any] = {}
    for word in switches:
        name, given, value = (part.strip() for part in word.partition("="))
        if not (given and name.isidentifier() and value):
            raise Refusal(f"--template-switches are NAME=VALUE with commas between, such as enable_thinking=false, got"
                          f" {word!r}")
        if name in OURS or name in found:
            why = "is given twice" if name in found else "is set by this package"
            raise Refusal(f"the template switch {name} {why}: leave it out")
        found[name] = value_of(value)
    return ChatSettings(system, found)


def value_of(word: str) -> Any:
    """A word as true, false, none, a number, a text in quotes, or else the text itself."""
    if word.lower() in WORDS:
        return WORDS[word.lower()]
    try:
        return json.loads(word)
    except ValueError:
        return word
