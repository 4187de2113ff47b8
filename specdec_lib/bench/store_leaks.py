"""Does a retrieval store hold the target's own answers to the prompts that are measured?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specdec_lib.bench import results
from specdec_lib.bench.results import Decode
from specdec_lib.index.static_store import open_store

OPENING, TELLING = 32, 16                          # tokens of an answer that are looked up: most, fewest

def store_leaks(run: Sequence[Decode], path: str | None) -> list[str]:
    """A warning if this store already holds answers that plain decoding gave in the run, by their first tokens."""
    if path is None:
        return []
    store, found, asked = open_store(path), set(), set()
    for one in results.select(run, method="ar", repeat=0):
        opening = one.outcome.tokens[:OPENING]
        asked.add(one.question_id)
        if len(opening) >= TELLING and store.find(opening).length == len(opening):
            found.add(one.question_id)
    if not found:
        return []
    return [f"{Path(path).name} holds the beginnings of the target's own answers to {len(found)} of {len(asked)}"
            " prompts: if it was built from answers to these prompts, copying from it is not a real gain."]
