"""What a user says in one line of a prompt file: one reading for the prompts of a bench and for those of training.

Knows neither tokenizers nor what a reader asks of a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_lib.types import Refusal

FIELDS = ("prompt", "question", "instruction")     # one turn
CHATS = ("messages", "conversations")              # with role and content, or with ShareGPT's `from` and `value`
USERS, ASSISTANTS = ("user", "human"), ("assistant", "gpt")
NEEDED = f"text in turns (a list), in one of {', '.join(FIELDS)}, or in the user's turns of messages"


def turns_in(row: Mapping[str, Any], where: str) -> Any:
    """The turns of a line's object, unchecked; None where it has none. `where` names the line in a refusal.

    They are `turns`, else the first of `FIELDS`, else the user's turns of a chat. What an instruction is about stands
    in `input`, as Alpaca's files have it, or in the first of `instances`, as self-instruct's do.
    """
    if "turns" in row:
        return row["turns"]
    field = next((name for name in (*FIELDS, *CHATS) if name in row), None)
    if field in CHATS:
        return user_turns(row[field], where)
    if field is None:
        return None
    said, about = row[field], material(row)
    return [f"{said}\n\n{about}" if about and isinstance(said, str) and said.strip() else said]


def user_turns(chat: Any, where: str) -> list[Any]:
    """What the user says in a chat, unchecked; Refusal where anybody but the user and the assistant speaks."""
    if not isinstance(chat, list) or not all(isinstance(message, dict) for message in chat):
        raise Refusal(f"{where} needs its messages to be a list of objects with role and content")
    turns = []
    for message in chat:
        role = message.get("role", message.get("from"))
        if role in USERS:
            turns.append(message.get("content", message.get("value")))
        elif role not in ASSISTANTS:
            raise Refusal(f"{where} has a turn of {role!r}, and only what the user says can be a prompt here: remove"
                          " that turn, or write its text into the user's; --system gives one to all prompts")
    return turns


def material(row: Mapping[str, Any]) -> str:
    """What an instruction is about, where a line says so beside it."""
    cases = row.get("instances")
    case = cases[0] if isinstance(cases, list) and cases and isinstance(cases[0], dict) else row
    about = case.get("input") if "instruction" in row else None
    return about.strip() if isinstance(about, str) else ""
