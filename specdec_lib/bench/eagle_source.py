"""`--eagle`: a published EAGLE head, from a folder or the hub, that replaces the trained `eagle`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from specdec_lib.bench.provenance import without_folders
from specdec_lib.heads.public_eagle import PublicEagle, load_public_eagle
from specdec_lib.hub import locate
from specdec_lib.types import LM, Refusal

STANDS_FOR = "eagle"
TAKES = "--eagle a folder or a hub name of an EAGLE head"
CONVERT = locate.CONVERT_BIN
Say = Callable[[str], None]


def check_eagle(name: str | None, needs: Collection[str]) -> None:
    """Refuses a published head that no method drafts with."""
    if name is not None and STANDS_FOR not in needs:
        raise Refusal("no method here drafts with an EAGLE head: name one, such as eagle2, or leave --eagle out")


def find_eagle(name: str | None, say: Say) -> Path | None:
    """The head's folder; Refusal where there is none with a config and safetensors."""
    return None if name is None else locate.model_folder(name, say, TAKES, CONVERT)


def load_eagle(name: str, folder: Path, target: LM, say: Say) -> PublicEagle:
    """The head, checked for this target; one line on `say` says what it is."""
    try:
        head = load_public_eagle(folder, target, without_folders(name))
    except Refusal as why:
        raise Refusal(f"{why}; give --eagle another head, or leave it out") from None
    taps = ", ".join(map(str, head.layout.taps))
    say(f"{head.layout.name} drafts for methods with an EAGLE head: {head.layout.kind}'s layout, hidden states after"
        f" {taps} layers, {head.layout.rows:,} tokens that it can draft")
    return head
