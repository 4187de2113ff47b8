"""Building a static store: one sort of all contexts, and a file that is written completely or not at all.

Source: prefix doubling of Manber and Myers 1990, with numpy's sort as the inner step. Ranks by 1, 2, 4 ... tokens; 64
are enough for the store's look-ups, so at most six sorts. Works in memory: about 60 bytes per token.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from specdec_lib.files import write_atomically
from specdec_lib.index.static_store import DEEPEST, GAP, HEADER, MAGIC
from specdec_lib.types import Refusal


def build_store(path: str | Path, documents: Iterable[Sequence[int] | np.ndarray],
                progress: Callable[[float], None] = lambda share: None) -> None:
    """Write the store of these documents to `path`; `progress` is called with the finished share, from 0 to 1.

    An older store stays in place until the new one is complete. Refusal for an empty corpus, ids that are not 32-bit
    or a full disk.
    """
    backwards = _lay_out(documents)
    order = context_order(backwards, progress)
    text, order = backwards.astype(">u4").tobytes(), order.astype("=u4").tobytes()
    vocab = int(backwards[backwards != GAP].max()) + 1
    check = zlib.crc32(order, zlib.crc32(text))
    head = {"magic": MAGIC, "tokens": len(backwards), "vocab": vocab, "crc32": check}
    _write_whole(Path(path), json.dumps(head).ljust(HEADER - 1).encode() + b"\n", text, order)
    progress(1.0)


def context_order(text: np.ndarray, progress: Callable[[float], None] = lambda share: None) -> np.ndarray:
    """Positions of a text [n] sorted by the (at most 64) tokens from there on; equal ones by position."""
    n, width = len(text), 1
    rank = np.unique(text, return_inverse=True)[1].reshape(-1).astype(np.int64) + 1      # 0 is "past the end"
    order = np.argsort(rank, kind="stable")
    while width < DEEPEST and int(rank.max()) < n:
        key = rank * (n + 1)
        key[:n - width] += rank[width:]
        order = np.argsort(key, kind="stable")
        rank[order] = np.concatenate(([0], np.cumsum(np.diff(key[order]) != 0))) + 1
        width *= 2
        progress(min(0.95, width / DEEPEST))
    return order


def _lay_out(documents: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
    """All documents, each followed by a gap, reversed."""
    gap, pieces = np.array([GAP], dtype=np.int64), []
    for document in documents:
        ids = np.asarray(document, dtype=np.int64)
        if ids.size and not (ids.min() >= 0 and ids.max() < GAP):
            raise Refusal("token ids of a corpus must lie between 0 and 2**32 - 2")
        if ids.size:
            pieces += [ids, gap]
    if not pieces:
        raise Refusal("the corpus is empty: give at least one token")
    return np.concatenate(pieces)[::-1]


def _write_whole(path: Path, *parts: bytes) -> None:
    def write(rough: Path) -> None:
        with rough.open("wb") as file:
            file.writelines(parts)
    try:
        write_atomically(path, write)
    except OSError as error:
        raise Refusal(f"the static index could not be written to {path}: {error.strerror}") from None
