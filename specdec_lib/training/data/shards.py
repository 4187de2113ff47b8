"""Generated data on disk: shards that are written once and whole, and a manifest with their checksums.

A shard is JSON lines, packed with gzip: `source`, `temperature`, `prompt` (text), `output` (token ids), and `earlier`
(texts) where the prompt was not the first turn. Knows nothing about models.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import starmap
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from specdec_lib.files import file_sha256, refuse_special, write_atomically
from specdec_lib.types import Refusal

MANIFEST = "manifest.json"
NAMES = ("shard-*.jsonl", "shard-*.jsonl.gz")
SHARD = re.compile(r"shard-\d+\.jsonl(\.gz)?")


class Record(TypedDict):
    """One answer of the target."""

    source: str                                    # who asked: `self`, a family, or the name of a prompt file
    temperature: float
    prompt: str                                    # one user turn
    output: list[int]                              # token ids, the end token kept where there was one
    earlier: NotRequired[list[str]]                # what was said before, the user's turns and the answers by turns
    system: NotRequired[str]                       # what the system said before all that


class Shards:
    """The shards of one folder, made by one target; what is damaged or half written is dropped when it is opened."""

    def __init__(self, folder: str | Path, target: str, packed: bool = True):
        self.folder, self.target, self.suffix = Path(folder), target, ".jsonl.gz" if packed else ".jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        new = not (self.folder / MANIFEST).exists()          # written before the first shard
        if new and any(path for pattern in NAMES for path in self.folder.glob(pattern)):
            raise Refusal(f"{self.folder} holds shards and no {MANIFEST}, which says whose they are: put it back,"
                          " delete the shards, which are then generated again, or give another folder")
        written = {"target": target, "shards": {}} if new else manifest(self.folder)
        refuse_other(self.folder, written, target)
        self.listed = {name: facts for name, facts in written["shards"].items()
                       if is_complete(self.folder / name, facts)}
        self.dropped = sorted(set(written["shards"]) - set(self.listed))
        self.write_manifest()
        for pattern in (*NAMES, "shard-*.partial"):
            for path in self.folder.glob(pattern):
                if path.name not in self.listed:
                    path.unlink()
        for name in self.listed:                   # a kill came before the state of a whole shard was removed
            self.begun_path(shard_number(name)).unlink(missing_ok=True)

    def begun(self, place: int) -> dict | None:
        """What `keep_begun` last wrote for this shard; None where there is nothing that can be read."""
        try:
            kept = json.loads(gzip.decompress(self.begun_path(place).read_bytes()))
        except (OSError, EOFError, ValueError, zlib.error):
            return None
        return kept if isinstance(kept, dict) else None

    def keep_begun(self, place: int, state: str) -> None:
        """Writes the state (JSON) of a shard under way; the whole shard replaces it."""
        replace(self.begun_path(place), gzip.compress(state.encode(), compresslevel=1, mtime=0))

    def begun_path(self, place: int) -> Path:
        return self.folder / f"begun-{place:05d}.json.gz"

    @property
    def tokens(self) -> int:
        """Output tokens in all whole shards."""
        return sum(facts["tokens"] for facts in self.listed.values())

    @property
    def records(self) -> int:
        return sum(facts["records"] for facts in self.listed.values())

    @property
    def free(self) -> int:
        """The first number without a whole shard."""
        taken = {shard_number(name) for name in self.listed}
        return next(n for n in range(len(taken) + 1) if n not in taken)

    def before(self, place: int) -> int:
        """Output tokens in the shards before this one."""
        return sum(facts["tokens"] for name, facts in self.listed.items() if shard_number(name) < place)

    def write(self, place: int, records: Iterable[Record]) -> Path:
        """Writes shard `place` in one step, then the manifest; ValueError if it is there already."""
        if place in {shard_number(name) for name in self.listed}:
            raise ValueError(f"shard {place} of {self.folder} is whole, and whole shards are never rewritten")
        records = list(records)
        data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
        data = gzip.compress(data, mtime=0) if self.suffix.endswith(".gz") else data
        path = self.folder / f"shard-{place:05d}{self.suffix}"
        replace(path, data)
        self.listed[path.name] = {"sha256": hashlib.sha256(data).hexdigest(), "records": len(records),
                                  "tokens": sum(len(record["output"]) for record in records)}
        self.write_manifest()
        self.begun_path(place).unlink(missing_ok=True)
        return path

    def write_manifest(self) -> None:
        shards = dict(sorted(self.listed.items()))
        replace(self.folder / MANIFEST, json.dumps({"target": self.target, "shards": shards}, indent=1).encode())

    def __iter__(self) -> Iterator[Record]:
        return read_shards(self.folder, self.target)


def read_shards(folder: str | Path, target: str | None = None) -> Iterator[Record]:
    """All records in the order of the shards. Refuses data of another target than this one, and damaged shards."""
    folder = Path(folder)
    written = manifest(folder)
    if target is not None:
        refuse_other(folder, written, target)
    for name, facts in sorted(written["shards"].items()):
        path = folder / name
        if not is_complete(path, facts):
            raise Refusal(f"{path} is damaged: generate again into this folder, which makes it anew")
        yield from records_in(path)


def records_in(path: Path) -> Iterator[Record]:
    """The records of one whole shard; Refusal for one that holds anything else."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        found: list[Any] = [json.loads(line) for line in text.removesuffix("\n").split("\n")] if text else []
    except (OSError, EOFError, ValueError, RecursionError, zlib.error):
        found = [None]
    if not all(isinstance(record, dict) for record in found):
        raise Refusal(f"{path} holds no answers, one JSON object a line: generate again into another folder")
    yield from found


def manifest(folder: Path) -> dict:
    """What the folder says of itself; Refusal where it says nothing readable."""
    refuse_special(folder / MANIFEST)
    try:
        written = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if isinstance(written["target"], str) and all(starmap(is_shard, written["shards"].items())):
            return written
    except FileNotFoundError:
        raise Refusal(f"{folder} holds no generated data: it has no {MANIFEST}; `specdec answers` or"
                      " `specdec train` makes some") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise Refusal(f"{folder / MANIFEST} cannot be read: delete the folder and generate again")


def are_whole(folder: Path) -> bool:
    """Whether a folder has a manifest and every shard that it names, undamaged; Refusal for one that cannot be read."""
    return (folder / MANIFEST).is_file() and all(is_complete(folder / name, facts)
                                                 for name, facts in manifest(folder)["shards"].items())


def is_shard(name: object, facts: object) -> bool:
    """Whether an entry of a manifest is of a shard in its own folder: a checksum and two counts."""
    counts = [facts.get("records"), facts.get("tokens")] if isinstance(facts, dict) else [None]
    return (isinstance(name, str) and SHARD.fullmatch(name) is not None and isinstance(facts, dict)
            and isinstance(facts.get("sha256"), str) and all(type(count) is int for count in counts))


def refuse_other(folder: Path, written: dict, target: str) -> None:
    """Raises Refusal for data that another target said."""
    if written["target"] != target:
        raise Refusal(f"{folder} holds the answers of another target ({written['target']}, not {target}), or those"
                      " after another --system or other --template-switches: give another folder, or the same options")


def is_complete(path: Path, facts: dict) -> bool:
    """Whether the file is there with the checksum it was written with."""
    return path.is_file() and file_sha256(path) == facts["sha256"]


def shard_number(name: str) -> int:
    """Of a shard's file name."""
    return int(name.removeprefix("shard-").split(".")[0])


def replace(path: Path, data: bytes) -> None:
    """Writes the file whole or not at all."""
    write_atomically(path, lambda rough: rough.write_bytes(data))
