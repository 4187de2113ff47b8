"""What a user says in one line of a prompt file, and what the system says before: one reading for all readers.

Knows neither tokenizers nor what a reader asks of a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_lib.files import broken_unicode
from specdec_lib.types import Refusal

FIELDS = ("prompt", "question", "instruction")     # one turn
CHATS = ("messages", "conversations")              # with role and content, or with ShareGPT's `from` and `value`
USERS, ASSISTANTS, SYSTEMS = ("user", "human"), ("assistant", "gpt"), ("system", "developer")
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
    """What the user says in a chat, unchecked.

    Refusal where anybody but the user and the assistant speaks behind the first turn, which may be the system's.
    """
    said = messages_of(chat, where)
    for place, (role, _) in enumerate(said):
        if role not in (*USERS, *ASSISTANTS) and not (place == 0 and role in SYSTEMS):
            raise Refusal(f"{where} has a turn of {role!r}, and a prompt here is what the user says, behind one turn of"
                          " the system at most: remove that turn, or write its text into the user's")
    return [text for role, text in said if role in USERS]


def system_in(row: Mapping[str, Any], where: str) -> str | None:
    """The system's turn with which the chat of a line begins; None without one, Refusal for one that is no text."""
    field = next((name for name in ("turns", *FIELDS, *CHATS) if name in row), None)
    said = messages_of(row[field], where)[:1] if field in CHATS else []
    if not said or said[0][0] not in SYSTEMS:
        return None
    text = said[0][1]
    if not isinstance(text, str) or not text.strip() or broken_unicode(text):
        raise Refusal(f"{where} has a system turn that is empty or no whole text: write its text or remove it")
    return text


def messages_of(chat: Any, where: str) -> list[tuple[Any, Any]]:
    """Role and text of every message, unchecked, in either format."""
    if not isinstance(chat, list) or not all(isinstance(message, dict) for message in chat):
        raise Refusal(f"{where} needs its messages to be a list of objects with role and content")
    return [(one.get("role", one.get("from")), one.get("content", one.get("value"))) for one in chat]


def material(row: Mapping[str, Any]) -> str:
    """What an instruction is about, where a line says so beside it."""
    cases = row.get("instances")
    case = cases[0] if isinstance(cases, list) and cases and isinstance(cases[0], dict) else row
    about = case.get("input") if "instruction" in row else None
    return about.strip() if isinstance(about, str) else ""
