"""`specdec digits`: images by the target alone and by speculation, counted, timed and compared.

Each method is one file, written whole or not at all, so a killed run continues with the next method. Images of the
same number start from the same noise in every method.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specdec_lib.bench.plan import check_threads
from specdec_lib.bench.provenance import provenance
from specdec_lib.bench.run_folder import SETTINGS, refuse_foreign
from specdec_lib.checkpoints.card import SHIPPED, read_card
from specdec_lib.continuous import loop
from specdec_lib.continuous.digits import CLASSES, classes, images_of, load_digits
from specdec_lib.continuous.loop import Decoded, ImagePlan
from specdec_lib.continuous.patch_model import HEADS, NAME, PatchModel, load_pair
from specdec_lib.continuous.quality import (
    Classifier,
    energy_test,
    frechet_distance,
    interval,
    train_classifier,
)
from specdec_lib.continuous.rule import EXACT, PUBLISHED
from specdec_lib.files import alone_in, file_stem, refuse_special, write_atomically, write_text
from specdec_lib.models.threads import for_model
from specdec_lib.parameters import mismatch, shown
from specdec_lib.specs import parse_part, split_specs
from specdec_lib.types import Refusal

PLAIN, AS_PUBLISHED = "plain", "published"
DEFAULT = "mixture-plain,mixture,diffusion-plain,diffusion,diffusion(aligned=False),diffusion-published"
SUMMARY = "summary.json"
FEWEST = 20                                        # images: two of every class
RULE_WORDS = ("softening", "factor", "last_noise", "tries")
PLAN_WORDS = ("depth", "aligned", "prefill")

Progress = Callable[[int, int, str], None]


class DigitMethod(NamedTuple):
    """A method as it was written, the kind of its heads, and how it speculates; None = the target alone."""

    text: str
    kind: str
    plan: ImagePlan | None

    @property
    def lossless(self) -> bool:
        """Whether its images have the target's distribution."""
        return self.plan is None or self.plan.rule.lossless


@dataclass(frozen=True)
class DigitOptions:
    """What a run was asked for."""

    methods: str = DEFAULT
    images: int = 200
    batch: int = 64
    keep: int = 60                                 # images whose pixels stay in the folder
    seed: int = 0
    threads: int | None = None

    def __post_init__(self):
        check_threads(self.threads)
        if self.images < FEWEST or self.images % (2 * CLASSES) or self.batch < 1 or self.keep < 1:
            raise Refusal(f"images are a multiple of {FEWEST}, a batch and the kept images at least 1, got "
                          f"{self.images}, {self.batch} and {self.keep}")


def parse_methods(text: str) -> list[DigitMethod]:
    """The methods of a comma-separated list, such as `diffusion(depth=8,prefill=0.05)`; Refusal for a wrong one."""
    found = [parse_method(spec) for spec in split_specs(text)]
    if not found or len({method.text for method in found}) < len(found):
        raise Refusal("name at least one method, and none twice")
    return found


def parse_method(text: str) -> DigitMethod:
    """One method: a kind of head, `-plain` or `-published`, and parameters of the plan and the rule."""
    name, values = parse_part(text)
    kind, _, how = name.partition("-")
    if kind not in HEADS or how not in ("", PLAIN, AS_PUBLISHED) or how == AS_PUBLISHED and kind == "mixture":
        names = [*HEADS, *(f"{kind}-{PLAIN}" for kind in HEADS), f"diffusion-{AS_PUBLISHED}"]
        raise Refusal(f"there is no method {name!r} for digits; there are {', '.join(names)}")
    known = () if how == PLAIN else (*PLAN_WORDS, *RULE_WORDS)
    for word, value in values.items():
        if word not in known:
            raise Refusal(f"{name} has no parameter {word!r}; it takes {', '.join(known) or 'none'}")
        why = mismatch(ImagePlan if word in PLAN_WORDS else type(EXACT), word, value)
        if why:
            raise Refusal(f"{name} cannot take {word}={shown(value)}: {why}")
    if how == PLAIN:
        return DigitMethod(text, kind, None)
    try:
        rule = replace(PUBLISHED if how else EXACT, **{word: values[word] for word in RULE_WORDS if word in values})
        plan = ImagePlan(rule=rule, **{word: values[word] for word in PLAN_WORDS if word in values})
    except (ValueError, TypeError) as error:
        raise Refusal(f"{text}: {error}") from None
    if kind == "mixture" and rule != EXACT:
        raise Refusal(f"{text}: a mixture has no denoising steps, so its rule has no {', '.join(RULE_WORDS)}")
    return DigitMethod(text, kind, plan)


def run_digits(asked: DigitOptions, out: Path, checkpoints: Path = SHIPPED,
               progress: Progress = lambda done, total, what: None) -> dict:
    """Runs what is missing in the folder, and returns its summary; Refusal for a folder of another run."""
    methods = parse_methods(asked.methods)
    settings = {**vars(asked), "checkpoint": read_card(checkpoints, NAME)["sha256"]}
    with alone_in(out):
        done = begun(out, settings, [method_file(out, method.text).name for method in methods])
        if done is not None:
            return done
        for_model(asked.threads)
        pairs = {kind: load_pair(kind, checkpoints) for kind in {method.kind for method in methods}}
        for number, method in enumerate(methods):
            progress(number, len(methods), method.text)
            path = method_file(out, method.text)
            if not path.is_file():
                write_method(path, *run_method(method, *pairs[method.kind], asked))
        progress(len(methods), len(methods), "comparing")
        summary = {"settings": settings, "provenance": provenance(),
                   "methods": summarise({method.text: method for method in methods}, out)}
        write_text(out / SUMMARY, json.dumps(summary, indent=1) + "\n")
        for method in methods:
            shorten(method_file(out, method.text), asked.keep)
        return summary


def begun(out: Path, settings: Mapping[str, Any], files: Sequence[str]) -> dict | None:
    """The summary of a finished run in this folder, else None; Refusal where its settings are others.

    Refusal as well for a folder that holds the files of a run, and no settings.
    """
    kept, summary = read_if_there(out / SETTINGS), read_if_there(out / SUMMARY)
    refuse_foreign(out, (SUMMARY, *files), kept is not None)
    if kept is None:
        write_text(out / SETTINGS, json.dumps(settings, indent=1) + "\n")
    elif kept != settings:
        raise Refusal(f"{out} holds a run with other settings: give another --out")
    return summary


def read_if_there(path: Path) -> Any:
    """What a JSON file of a run holds, None where there is none; Refusal for a damaged one."""
    refuse_special(path)
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    except (OSError, ValueError, RecursionError):
        raise Refusal(f"{path.parent} holds a damaged run: remove it, or give another --out") from None


def run_method(method: DigitMethod, target: PatchModel, draft: PatchModel,
               asked: DigitOptions) -> tuple[dict[str, Tensor], dict]:
    """Images and origins of a method, and its counts by batch."""
    parts: list[Decoded] = []
    labels = classes(asked.images)
    one(method, target, draft, labels[:asked.batch], torch.arange(min(asked.batch, asked.images)) + 10 ** 6, asked.seed)
    for start in range(0, asked.images, asked.batch):
        some = torch.arange(start, min(start + asked.batch, asked.images))
        parts.append(one(method, target, draft, labels[some], some, asked.seed))
    tensors = {"tokens": torch.cat([part.tokens for part in parts]),
               "origin": torch.cat([part.origin for part in parts]).to(torch.uint8),
               "tries": torch.cat([part.tries for part in parts]).int()}
    about = {name: [getattr(part, name) for part in parts] for name in
             ("target_forwards", "draft_forwards", "seconds", "unresolved")}
    return tensors, {**about, "batches": [len(part.labels) for part in parts]}


def one(method: DigitMethod, target: PatchModel, draft: PatchModel, labels: Tensor, images: Tensor,
        seed: int) -> Decoded:
    """One batch of images by this method."""
    if method.plan is None:
        return loop.decode_plain(target, labels, images, seed)
    return loop.decode(target, draft, labels, images, method.plan, seed)


def method_file(out: Path, text: str) -> Path:
    """The file of a method."""
    return out / f"{file_stem(text)}.safetensors"


def write_method(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Writes images and counts of a method."""
    from safetensors.torch import save_file

    write_atomically(path, lambda partial: save_file(dict(tensors), partial, {"about": json.dumps(about)}))


def read_method(path: Path) -> tuple[dict[str, Tensor], dict]:
    """What `write_method` wrote; Refusal for a missing or damaged file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as file:
            return ({key: file.get_tensor(key) for key in file.keys()},            # noqa: SIM118
                    json.loads(file.metadata()["about"]))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        raise Refusal(f"{path} is missing or damaged: remove the folder and run `specdec digits` again") from None


def pixels(out: Path, text: str) -> Tensor:
    """The kept images of a method [n, 8, 8], in levels."""
    return images_of(read_method(method_file(out, text))[0]["tokens"].float())


def shorten(path: Path, keep: int) -> None:
    """Leaves the pixels of the first images, in half precision."""
    tensors, about = read_method(path)
    short = {name: tensor[:keep].clone() for name, tensor in tensors.items()}
    write_method(path, {**short, "tokens": short["tokens"].half()}, about)


def summarise(methods: Mapping[str, DigitMethod], out: Path) -> dict[str, dict]:
    """What the files of the methods hold, as figures by method."""
    digits = load_digits()
    classifier = train_classifier(digits.part(False))
    real = digits.part(True)
    found = {text: read_method(method_file(out, text)) for text in methods}
    plain = {method.kind: found[text][0]["tokens"] for text, method in methods.items() if method.plan is None}
    return {text: {"kind": method.kind, "speculates": method.plan is not None, "lossless": method.lossless,
                   **counts(*found[text]), **quality(found[text][0]["tokens"], classifier, real.images),
                   **against(found[text][0]["tokens"], plain.get(method.kind))}
            for text, method in methods.items()}


def counts(tensors: Mapping[str, Tensor], about: Mapping[str, Sequence]) -> dict:
    """Forwards, seconds and acceptance of a method: by image, in total and by position."""
    origin, tries = tensors["origin"], tensors["tries"]
    kept, replaced = (origin == loop.KEPT).sum(0), (origin == loop.REPLACED).sum(0)
    tested, images = kept + replaced, sum(about["batches"])
    each = [float(a / b) if b else None for a, b in zip(kept, tested, strict=True)]
    return {"images": images, "seconds": sum(about["seconds"]), "seconds_by_batch": list(about["seconds"]),
            "target_forwards": sum(about["target_forwards"]), "draft_forwards": sum(about["draft_forwards"]),
            "batches": len(about["batches"]), "tested": int(tested.sum()), "accepted": int(kept.sum()),
            "acceptance": float(kept.sum() / tested.sum()) if tested.sum() else None, "by_position": each,
            "mean_tries": float(tries[origin == loop.REPLACED].double().mean()) if replaced.sum() else None,
            "unresolved": sum(about["unresolved"])}


def quality(tokens: Tensor, classifier: Classifier, real: Tensor) -> dict:
    """Accuracy of the classifier on the images and their Frechet distance to held-out real ones.

    The accuracy has an interval. The distance has none: a resample repeats images, which raises the distance by more
    than its own spread.
    """
    images = images_of(tokens.float())
    right, features, theirs = (classifier.right(images, classes(len(images))), classifier.features(images),
                               classifier.features(real))
    return {"accuracy": float(right.mean()), "accuracy_interval": interval(right, lambda some: float(some.mean())),
            "frechet": frechet_distance(features, theirs)}


def against(tokens: Tensor, plain: Tensor | None) -> dict:
    """The energy test of the second half of the images against the first half of the target's own: other noise."""
    if plain is None:
        return {"energy": None, "p_value": None}
    half, labels = len(tokens) // 2, classes(len(tokens))
    test = energy_test(plain[:half].flatten(1), tokens[half:].flatten(1), labels=(labels[:half], labels[half:]))
    return {"energy": test.distance, "p_value": test.p_value}
