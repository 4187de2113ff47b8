"""`specdec store`: texts and answers become token ids, and these a static store on disk.

A document is a text file, a line of a JSON-lines file, or an answer in a folder: one that training made, or a bench,
of which plain decoding's answers count. Token ids have to be of this target's tokenizer; texts are encoded here. A
store of the answers to the measured prompts proves nothing: `bench/store_leaks.py` warns of it.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specdec_lib.bench import results
from specdec_lib.bench.run_folder import refuse_own_file
from specdec_lib.files import broken_unicode, check_file_place
from specdec_lib.hub import locate
from specdec_lib.hub.load import free_memory
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.index.store_build import build_store
from specdec_lib.training.data import shards
from specdec_lib.types import Refusal

LINES = 2000                                       # of a text file that are encoded at a time
CORES = os.cpu_count() or 1
BYTES = 60                                         # of memory that sorting takes per token
Progress = Callable[[int, int, str], None]


class Built(NamedTuple):
    documents: int
    tokens: int


def build_from(sources: Sequence[Path], out: Path, target: str, say: Callable[[str], None],
               progress: Progress, threads: int | None = None) -> Built:
    """Writes the store of these files and folders to `out` atomically; an older one stays until then.

    `threads` encode a text, by default one a core; the store is the same for any number of them.
    Refusal for a source that is missing, unreadable, empty or made of other token ids, and for too little memory.
    """
    check_sources(sources, out)
    threads = encoding_threads(threads)
    text = Tokenizer(locate.model_folder(target, say))
    found = list(documents(sources, text, progress, threads))
    tokens = sum(map(len, found))
    free = free_memory("cpu")
    if free is not None and tokens * BYTES > free:
        raise Refusal(f"sorting {tokens:,} tokens takes about {tokens * BYTES / 2**30:.1f} GiB of memory and"
                      f" {free / 2**30:.1f} are free: give fewer files")
    out.parent.mkdir(parents=True, exist_ok=True)
    build_store(out, found, lambda share: progress(round(1000 * share), 1000, f"sorting {tokens:,} tokens"))
    return Built(len(found), tokens)


def check_sources(sources: Sequence[Path], out: Path) -> None:
    """Refuses, before anything is read, missing sources and an `out` that cannot be written."""
    if not sources:
        raise Refusal("a store needs sources: give text files, JSON lines or folders of answers with --from")
    for path in sources:
        if not path.exists():
            raise Refusal(f"there is no file or folder {path}: check the path")
        if path.resolve() == out.resolve():
            raise Refusal(f"{path} would be replaced by its own store: give another --out")
    check_file_place(out)
    refuse_own_file(out, sources)


def encoding_threads(threads: int | None) -> int:
    """The number of threads that encode, at most one a core; the tokenizer starts as many. Refusal below 1."""
    if threads is not None and threads < 1:
        raise Refusal(f"threads must be at least 1, got {threads}")
    found = min(threads or CORES, CORES)
    if threads is not None:
        os.environ["RAYON_NUM_THREADS"] = str(found)   # read when the tokenizer first encodes several
    return found


def documents(sources: Sequence[Path], text: Tokenizer, progress: Progress, threads: int = 1) -> Iterator[np.ndarray]:
    """Token ids of every document, empty ones left out; Refusal naming the source that holds none."""
    done, total, tokens = 0, sum(map(size, sources)), 0
    for path in sources:
        some = False
        for ids, place in of_one(path, text, threads):
            if len(ids):
                some, tokens = True, tokens + len(ids)
                yield ids
            progress(done + place, total, f"reading {path.name}, {tokens:,} tokens")
        if not some:
            raise Refusal(f"{path} holds no text and no answers: leave it out")
        done += size(path)


def of_one(path: Path, text: Tokenizer, threads: int = 1) -> Iterator[tuple[np.ndarray, int]]:
    """The documents of one source, empty ones too, each with the bytes of the source that were read so far."""
    if path.is_dir():
        for n, record in enumerate(answers_in(path), 1):
            yield as_ids(record, f"answer {n} in {path}", text), 0
        return
    with open_lines(path) as (rows, read):
        if path.name.removesuffix(".gz").endswith((".jsonl", ".json")):
            for n, row in enumerate(rows, 1):
                if row.strip():
                    yield as_ids(parsed(row, f"line {n} of {path}"), f"line {n} of {path}", text), read()
            return
        pieces = [encode_text("", text)]
        texts = map("".join, iter(lambda: list(islice(rows, LINES)), []))
        for some in iter(lambda: list(islice(texts, threads)), []):
            pieces += encode_texts(some, text)
            yield pieces[0], read()
        yield np.concatenate(pieces), read()


def answers_in(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Records with an `output`, from a folder of training or of a finished bench; Refusal for any other."""
    if (folder / "parts").exists() and not (folder / "summary.json").exists():
        raise Refusal(f"the run in {folder} is not finished: run its command again")
    if not (folder / "decodes.parquet").exists():
        if not (folder / shards.MANIFEST).exists():
            raise Refusal(f"{folder} is a folder without answers: for texts name their files, such as {folder}/*.txt")
        yield from shards.read_shards(folder)
        return
    plain = results.select(results.read_turns(folder), method="ar", repeat=0)
    yield from ({"output": list(one.outcome.tokens)} for one in plain)


@contextmanager
def open_lines(path: Path) -> Iterator[tuple[Iterator[str], Callable[[], int]]]:
    """The lines of a text file, gzipped or not, and how many of its bytes were read; Refusal if unreadable."""
    try:
        with path.open("rb") as raw:
            opened = gzip.open(raw) if path.suffix == ".gz" else raw         # noqa: SIM115 - closed with `raw`
            yield (line.decode("utf-8-sig" if n == 0 else "utf-8") for n, line in enumerate(opened)), raw.tell
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise Refusal(f"{path} cannot be read as UTF-8 text ({error}): save it as UTF-8 text, packed by gzip where its"
                      " name ends with .gz") from None


def parsed(row: str, where: str) -> Any:
    try:
        return json.loads(row)
    except (ValueError, RecursionError):
        raise Refusal(f"{where} is not valid JSON: write one JSON object a line") from None


def as_ids(record: Any, where: str, text: Tokenizer) -> np.ndarray:
    """The ids of one record: `output` as token ids, else `output` or `text` as text. Refusal for anything else."""
    record = record if isinstance(record, dict) else {}
    found = record.get("output", record.get("text"))
    if isinstance(found, str) and broken_unicode(found):
        raise Refusal(f"{where} has broken Unicode, an escape of half a character: write it whole")
    if isinstance(found, str):
        return encode_text(found, text)
    if not isinstance(found, list) or not all(type(token) is int for token in found):
        raise Refusal(f"{where} needs output (a list of token ids, or text) or text")
    known = text.facts.vocab or len(text.tokenizer)
    if found and not 0 <= min(found) <= max(found) < known:
        raise Refusal(f"{where} has token ids from {min(found)} to {max(found)} and the target knows 0 to {known - 1}:"
                      " it was answered by another model, give its --target")
    return np.array(found, dtype=np.int64)


def encode_texts(written: list[str], text: Tokenizer) -> list[np.ndarray]:
    """Ids of several texts, as `encode_text` gives them; the tokenizer encodes them at the same time."""
    return [np.array(ids, dtype=np.int64) for ids in text.plain(written)]


def encode_text(written: str, text: Tokenizer) -> np.ndarray:
    """Ids of a text, without the tokenizer's begin and end tokens."""
    return encode_texts([written], text)[0]


def size(path: Path) -> int:
    """Bytes on disk."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
