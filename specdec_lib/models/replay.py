"""Replay: a recording of one greedy decode, used as the target of that prompt.

A recording holds the committed tokens, the row statistics (top 64) of every row on the path, and for each drafter
its largest draft from every committed prefix. Of a drafter of chains these are chains at some lengths. Of a drafter of
trees it is a forest: the nodes of all trees within the budget that `trees` names, best first, from which
what/recorded.py reads any of them. Of a drafter of lattices it holds these as well, with log-probabilities to three
digits. Replaying is exact for every lossless greedy method whose drafter depends on the committed prefix alone: a row
off the path is never reached, since its node is rejected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specdec_lib.collection import without_collection
from specdec_lib.files import write_atomically
from specdec_lib.models import threads
from specdec_lib.models.by_drafter import ByDrafter, to_add
from specdec_lib.models.recorded_scores import RecordedScores
from specdec_lib.scores import RowStats, TokenStats
from specdec_lib.trees import first_nodes
from specdec_lib.types import ROOT, Budget, Draft, Lattice, Refusal

FORMAT = 2
KINDS = {"end": list, "vocab": int, "pieces": dict, "added": list, "target": dict}      # of a header's parts
READABLE = ("1", "2")                              # 1 stored parents of chains, and confidences equal to probabilities
SHIPPED = Path(__file__).parents[2] / "data" / "recordings"


@dataclass(frozen=True)
class Recording:
    """One recorded decode. Row i of `row_stats`, drafts and lattices [name][length] follows `tokens[:prompt + i]`."""

    tokens: tuple[int, ...]                        # prompt and output
    prompt: int
    row_stats: RowStats                            # ids, logits [T, 64]; lse, entropy [T]
    drafts: Mapping[str, Mapping[int, tuple[Draft, ...]]]
    seconds: Mapping[str, Mapping[int, tuple[float, ...]]]
    about: Mapping[str, Any] = field(default_factory=dict)    # family, text, target, vocab, end, pieces, provenance
    trees: Mapping[str, Budget] = field(default_factory=dict)     # drafters recorded as forests: their largest tree
    lattices: Mapping[str, Mapping[int, tuple[Lattice, ...]]] = field(default_factory=dict)
    blocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)     # block sizes of lattice drafters

    def __post_init__(self):
        object.__setattr__(self, "drafts", ByDrafter(self.drafts))              # the dataclass is frozen

    @property
    def output(self) -> tuple[int, ...]:
        return self.tokens[self.prompt:]

    @property
    def end(self) -> frozenset[int]:
        return frozenset(self.about["end"])

    @cached_property
    def pieces(self) -> dict[int, str]:
        """The text of every token that occurs, so that no tokenizer is needed to show it."""
        return {int(token): piece for token, piece in self.about["pieces"].items()}

    def draft(self, name: str, length: int, depth: int) -> Draft:
        """The recorded draft from the committed prefix of this length that allows this depth; empty past the end."""
        lengths = sorted(self.drafts[name])
        kept = next((some for some in lengths if some >= depth), lengths[-1])
        row = length - self.prompt
        return self.drafts[name][kept][row] if 0 <= row < len(self.drafts[name][kept]) else Draft()

    def lattice(self, name: str, length: int, depth: int) -> Lattice:
        """The first `depth` slots that this drafter filled from the committed prefix of this length; none past the end.

        They come from the shortest lattice that has so many, or from the longest one, which may have fewer.
        """
        if name not in self.lattices:
            raise Refusal(f"the recording holds no lattices of {name!r}; it holds those of: "
                          f"{', '.join(self.lattices) or 'nobody'}; where it fills slots, as diffusion-lm does, add"
                          f" them with {to_add(name)}")
        lengths = sorted(self.lattices[name])
        kept = self.lattices[name][next((some for some in lengths if some >= depth), lengths[-1])]
        row = length - self.prompt
        whole, slots = (kept[row], depth) if 0 <= row < len(kept) else (kept[0], 0)
        return Lattice(whole.ids[:slots], whole.logp[:slots])


class Replay:
    """The target of a recording: an LM without weights that scores one text."""

    def __init__(self, recording: Recording):
        self.recording, self.context, self.forwards = recording, None, 0

    def fresh(self) -> Replay:
        return Replay(self.recording)

    def prefill(self, tokens: tuple[int, ...]) -> None:
        """Nothing to feed; the context is checked at the first forward."""

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> RecordedScores:
        """Rows on the recorded path as recorded, top 64 (the rest -inf); rows off it hold token -1, never reached."""
        rec = self.recording
        if tokens != rec.tokens[:len(tokens)] or not rec.prompt <= len(tokens) < len(rec.tokens):
            raise Refusal("this context is not on the recorded path: a recording replays greedy lossless decoding of "
                          "its own prompt only")
        self.forwards += 1
        rows = [len(tokens) - rec.prompt]
        for node, parent in enumerate(draft.parents):
            before = rows[parent + 1]
            place = rec.prompt + before
            on_path = before >= 0 and place + 1 < len(rec.tokens) and draft.tokens[node] == rec.tokens[place]
            rows.append(before + 1 if on_path else -1)
        return RecordedScores(rec.row_stats, rec.about["vocab"], rows)

    def features(self, tokens: tuple[int, ...]) -> Tensor:
        raise Refusal("a recording holds no hidden states: run the model itself for a drafter that needs features")

    def exit(self, layer: int) -> Replay:
        raise Refusal("a recording has no layers to leave early: run the model itself")


# --- on disk: flat arrays, no draft that is the beginning of a longer one, and a JSON header -------------------------

def save_recording(recording: Recording, path: Path) -> None:
    """Writes the recording as one safetensors file, whole or not at all."""
    arrays = {"tokens": torch.tensor(recording.tokens, dtype=torch.int32),
              "brief.ids": _ids(recording.row_stats.ids), "brief.logits": recording.row_stats.logits.float(),
              "brief.lse": torch.tensor(recording.row_stats.lse),
              "brief.entropy": torch.tensor(recording.row_stats.entropy)}
    for name, lengths in recording.drafts.items():
        for length, drafts in lengths.items():
            flat = _flatten(drafts)
            if length < max(lengths) and _same(flat, _flatten(_cut(lengths[max(lengths)], length))):
                flat = {}
            flat["seconds"] = torch.tensor(recording.seconds[name][length])
            arrays |= {f"draft/{name}/{length}/{key}": value for key, value in flat.items()}
    for name, lengths in recording.lattices.items():
        for length, lattices in lengths.items():
            arrays |= {f"lattice/{name}/{length}/{key}": value for key, value in _stacked(lattices).items()}
    trees = {name: (largest.depth, largest.width, largest.size) for name, largest in recording.trees.items()}
    header = {"format": str(FORMAT), "prompt": str(recording.prompt), "about": json.dumps(dict(recording.about)),
              "trees": json.dumps(trees), "blocks": json.dumps(dict(recording.blocks))}
    tensors = {key: value.contiguous() for key, value in arrays.items()}
    header["sha256"] = content_sha256(tensors, header)

    def write(partial: Path) -> None:
        save_file(tensors, partial, header)
        partial.chmod(0o644)                       # safetensors makes the file readable for its owner alone

    write_atomically(path, write)


def content_sha256(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Hexadecimal SHA-256 of all arrays and of the header's other entries, in the order of their names."""
    total = hashlib.sha256()
    for name, value in sorted(header.items()):
        if name != "sha256":
            total.update(f"{name}={value}\n".encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def shipped_recordings(folder: Path = SHIPPED) -> dict[str, Path]:
    """The recordings in a folder by family, the shipped ones by default; empty where there are none."""
    return {path.stem: path for path in sorted(folder.glob("*.safetensors"))}


@without_collection()
def load_recording(path: Path | str) -> Recording:
    """Reads a recording; Refusal where it is missing, cut short or of another format. Replaying takes one thread."""
    threads.for_short_work()
    path = Path(path)
    if not path.is_file():
        raise Refusal(f"there is no recording {path}: make one with `specdec record --out {path.parent}`")
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}       # noqa: SIM118
        if header.get("format") not in READABLE:
            raise Refusal(f"{path.name} is not a recording of format {FORMAT}: record it again")
        if header.get("sha256", (written := content_sha256(arrays, header))) != written:   # older ones have none
            raise Refusal(f"the recording {path.name} is damaged, its checksum is not the one it was written with:"
                          " copy it again, or record it in another folder")
        trees = {name: Budget(*largest) for name, largest in json.loads(header.get("trees", "{}")).items()}
        blocks = {name: tuple(sizes) for name, sizes in json.loads(header.get("blocks", "{}")).items()}
        recording = _assemble(arrays, int(header["prompt"]), checked_about(json.loads(header["about"])), trees)
        return replace(recording, lattices=_lattices(arrays), blocks=blocks)
    except (SafetensorError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, OSError) as error:
        if isinstance(error, Refusal):
            raise
        raise Refusal(f"the recording {path.name} is damaged: make it again with `specdec record`") from error


def checked_about(about: Any) -> dict:
    """The part of a header that says where a recording comes from; ValueError where readers could not rely on it."""
    if not isinstance(about, dict) or not all(isinstance(about.get(key, kind()), kind) for key, kind in KINDS.items()):
        raise ValueError("another kind of header")
    if not (1 <= about["vocab"] < 2 ** 31 and all(type(token) is int for token in about["end"])):
        raise ValueError("no vocabulary or no end tokens")
    return about


def _assemble(arrays: dict[str, Tensor], prompt: int, about: dict, trees: dict[str, Budget]) -> Recording:
    row_stats = RowStats(arrays["brief.ids"].long(), arrays["brief.logits"], tuple(range(len(arrays["brief.ids"]))),
                         tuple(arrays["brief.lse"].tolist()), tuple(arrays["brief.entropy"].tolist()))
    drafts: dict[str, dict[int, tuple[Draft, ...]]] = {}
    seconds: dict[str, dict[int, tuple[float, ...]]] = {}
    for key in arrays:
        if key.startswith("draft/") and key.endswith("/seconds"):
            _, name, length, _ = key.split("/")
            part = {k.rsplit("/", 1)[1]: v for k, v in arrays.items() if k.startswith(f"draft/{name}/{length}/")}
            drafts.setdefault(name, {})[int(length)] = _unflatten(part, name) if "tokens" in part else ()
            seconds.setdefault(name, {})[int(length)] = tuple(part["seconds"].tolist())
    for lengths in drafts.values():
        whole = lengths[max(lengths)]
        lengths.update({length: _cut(whole, length) for length, kept in lengths.items() if not kept})
    return Recording(tuple(arrays["tokens"].tolist()), prompt, row_stats, drafts, seconds, about, trees)


def _cut(drafts: tuple[Draft, ...], length: int) -> tuple[Draft, ...]:
    """The first nodes of each draft: the draft of a drafter of chains at a smaller length."""
    return tuple(first_nodes(draft, length) for draft in drafts)


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def _stacked(lattices: tuple[Lattice, ...]) -> dict[str, Tensor]:
    """All positions in one: ids [T, n, m], in two bytes if that is enough, and log-probabilities in half precision."""
    ids = torch.stack([lattice.ids for lattice in lattices])
    logp = torch.stack([lattice.logp for lattice in lattices])
    return {"ids": _ids(ids), "logp": logp.half()}


def _ids(ids: Tensor) -> Tensor:
    """Tokens in two bytes where that is enough."""
    return ids.to(torch.uint16 if not ids.numel() or int(ids.max()) < 1 << 16 else torch.int32)


def _lattices(arrays: dict[str, Tensor]) -> dict[str, dict[int, tuple[Lattice, ...]]]:
    found = sorted({(name, int(length)) for key in arrays if key.startswith("lattice/")
                    for _, name, length, _ in [key.split("/")]})
    out: dict[str, dict[int, tuple[Lattice, ...]]] = {}
    for name, length in found:
        at = f"lattice/{name}/{length}/"
        out.setdefault(name, {})[length] = tuple(map(Lattice, arrays[at + "ids"].long(), arrays[at + "logp"].float()))
    return out


def _flatten(drafts: tuple[Draft, ...]) -> dict[str, Tensor]:
    ends = torch.tensor([len(draft) for draft in drafts], dtype=torch.int32).cumsum(0).to(torch.int32)
    flat = {"ends": ends, "tokens": _ids(torch.tensor([t for draft in drafts for t in draft.tokens]))}
    if any(draft.parents != _chain(len(draft)) for draft in drafts):
        flat["parents"] = torch.tensor([p for draft in drafts for p in draft.parents], dtype=torch.int16)
    if any(draft.stats for draft in drafts):
        flat["sights"] = torch.tensor([list(stat) for draft in drafts for stat in draft.stats])
    if any(draft.confidence for draft in drafts):
        confidence = torch.tensor([confidence for draft in drafts for confidence in draft.confidence])
        told = "sights" in flat and torch.equal(confidence, flat["sights"][:, 0])
        flat["belief"] = confidence[:0] if told else confidence    # empty: equal to the probabilities
    return flat


def _chain(length: int) -> tuple[int, ...]:
    return tuple(range(ROOT, length - 1))


def _unflatten(part: dict[str, Tensor], name: str) -> tuple[Draft, ...]:
    ends, tokens = part["ends"].tolist(), part["tokens"].tolist()
    stats = [TokenStats(*row) for row in part["sights"].tolist()] if "sights" in part else []
    confidence = part["belief"].tolist() if "belief" in part else []
    if "belief" in part and not confidence:
        confidence = [stat.prob for stat in stats]
    parents = part["parents"].tolist() if "parents" in part else None
    return tuple(Draft(tuple(tokens[a:b]), _chain(b - a) if parents is None else tuple(parents[a:b]),
                       stats=tuple(stats[a:b]), source=(name,) * (b - a), confidence=tuple(confidence[a:b]))
                 for a, b in zip([0, *ends], ends, strict=False))
