"""A conversation as a model's chat template writes it, the same on every day.

Knows neither token ids nor weights; `tokenizer` is transformers'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from specdec_lib.hub.chat_settings import ChatSettings
from specdec_lib.types import Refusal

ROLES = ("user", "assistant")
SYSTEM = "system"
DATE = date(2024, 7, 26)                           # what Llama 3's template takes where it is told no date
Message = tuple[str, str]                          # role and text
History = Sequence[str | Message]                  # texts in turns, the user's first; or (role, text) pairs


def conversation(turns: Sequence[str], system: str | None = None) -> list[Message]:
    """The user's turns and the answers between them with their roles, behind a system turn where there is one."""
    said = [(ROLES[i % 2], turn) for i, turn in enumerate(turns)]
    return said if system is None else [(SYSTEM, system), *said]


def with_system(turns: Sequence[str], system: str | None) -> History:
    """The same for a tokenizer: the turns alone are enough where the system says nothing."""
    return turns if system is None else conversation(turns, system)


def written_by(tokenizer: Any, messages: list[dict[str, str]], chat: ChatSettings, add_generation_prompt: bool) -> str:
    """These messages as text, with the switches of these settings. Raises whatever the template raises."""
    template = dated(tokenizer.get_chat_template())
    return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False,
                                         add_generation_prompt=add_generation_prompt, **chat.switches)


def refuse_unread(switches: Iterable[str], tokenizer: Any, called: str) -> None:
    """Raises Refusal for a switch that the chat template of this tokenizer does not read: it would change nothing."""
    template = str(tokenizer.get_chat_template()) if tokenizer.chat_template else ""
    for name in switches:
        if not re.search(rf"\b{re.escape(name)}\b", template):
            raise Refusal(f"the chat template of {called} does not read {name!r}: leave the template switch out, or"
                          " correct its name")


def dated(template: str) -> str:
    """The template, with `DATE` for today's date where it asks for that."""
    if "strftime_now" not in template:
        return template                            # as it is
    # transformers' templates drop the line break behind a macro, so blanks that begin a template keep their meaning
    written = "".join(f"|replace('%{code}', '{DATE.strftime('%' + code)}')" for code in "aAbBdeHIjmMpSyYFT")
    return f"{{% macro strftime_now(format) %}}{{{{ format{written} }}}}{{% endmacro %}}\n{template}"


def as_messages(history: History) -> list[dict[str, str]]:
    """Role and content of every turn. Refusal for no turn or an empty one, ValueError for text, not a list."""
    if isinstance(history, str):
        raise ValueError("a conversation is a list of turns: write [prompt]")
    pairs = [(ROLES[i % 2], turn) if isinstance(turn, str) else turn for i, turn in enumerate(history)]
    if not pairs or any(role == "user" and not text.strip() for role, text in pairs):
        raise Refusal("the prompt is empty: give some text to answer")
    return [{"role": role, "content": text} for role, text in pairs]
