"""What a recording holds of each drafter, by the drafter's name."""

from __future__ import annotations

from typing import Any

from specdec_lib.types import Refusal


class ByDrafter(dict[str, Any]):
    """What was recorded of each drafter; Refusal names them where another one is asked for."""

    def __missing__(self, name: str) -> Any:
        raise Refusal(f"the recording has no drafter {name!r}; it has: {', '.join(self) or 'none'}: name one of these,"
                      f" or add it with {to_add(name)}")


def to_add(name: str) -> str:
    """What adds this drafter to recordings, in words."""
    return (f"`specdec record --add --drafters {name}`, given the --out, --target, --prompts and --limit that they were"
            " made with")
