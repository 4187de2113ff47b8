"""`specdec train digits`: two targets and two drafts over patches of digits, with mixture and with diffusion heads.

The draft learns from the images alone, as the target does. Minutes are seconds of the processor, so that a process
that is stopped for a while learns as much. Each model resumes from its own folder.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

import torch

from specdec_lib.checkpoints.checkpoint_files import Checkpoint, save_checkpoint
from specdec_lib.continuous.digits import NOISE, Digits, load_digits, tokens_of, with_noise
from specdec_lib.continuous.patch_model import NAME, SIZES, PatchModel, load_model, named_state
from specdec_lib.files import alone_in
from specdec_lib.training import fit
from specdec_lib.training.data.batches import place_seed
from specdec_lib.training.fit import LOG, Progress, Settings
from specdec_lib.types import Refusal

SHARES = {"mixture.target": 0.2, "mixture.draft": 0.15, "diffusion.target": 0.45, "diffusion.draft": 0.2}
EVERY = 50                                         # steps between lines of the log
MEASURED = 8                                       # passes over the held-out images for a measurement
LIMITS = ("It knows the training images of one collection of 1,797, and no more than their classes.",
          "The models give real numbers around the levels 0 to 16; rounding them to levels is left to the reader.",
          "There is no classifier-free guidance, which the published models of images use.")


@dataclass(frozen=True)
class DigitSettings:
    """Settings of all four fits; `minutes` are shared out among them by `SHARES`."""

    minutes: float = 6.0                           # twice as many overfit the 1,437 images
    rate: float = 2e-3
    batch: int = 128
    smoothing: float = 0.999                       # of the average of weights that is stored
    seed: int = 0

    def __post_init__(self):
        if self.minutes <= 0 or self.rate <= 0:
            raise Refusal(f"minutes and rate are above 0, got {self.minutes} and {self.rate}")


def train_digits(asked: DigitSettings, out: Path, made: Mapping, say: Callable[[str], None] = lambda line: None,
                 progress: Callable[[int, int, str], None] = lambda done, total, what: None,
                 clock: Callable[[], float] = process_time) -> Checkpoint:
    """Trains, measures and stores the four models in OUT/digits; a killed training resumes."""
    digits = load_digits()
    learned, held = digits.part(False), digits.part(True)
    models, steps, seconds = {}, {}, 0.0
    with alone_in(out / "work" / NAME):
        for number, name in enumerate(SIZES):
            say(f"training {name}")
            place = out / "work" / NAME / name
            models[name], done = fit_digits(name, learned, held, asked, place, clock, lambda share, line, number=number:
                                            progress(round(1000 * (number + share)), 1000 * len(SIZES), line))
            steps[name], seconds = done.step, seconds + done.seconds
        about = {"target": "the 8 x 8 digits of scikit-learn", "limits": list(LIMITS), "measured": {},
                 "made": {**made, "minutes": round(seconds / 60, 2), "steps": steps, "device": "cpu",
                          "data": f"{len(learned.labels)} images, with noise of {NOISE} levels"},
                 "settings": asdict(asked)}
        meta = {"sizes": {name: list(size) for name, size in SIZES.items()}}
        args = out, NAME, named_state(models), meta
        done = save_checkpoint(*args, about, {}, None, {})
        about["measured"] = {"held-out loss": held_out_losses(done, held)}
        done = save_checkpoint(*args, about, {}, None, {})
        fit.keep_log(out / NAME, *(out / "work" / NAME / name for name in SIZES))
    return done


def fit_digits(name: str, learned: Digits, held: Digits, asked: DigitSettings, folder: Path,
               clock: Callable[[], float], progress: Callable[[float, str], None]) -> tuple[PatchModel, Progress]:
    """Trains one model; returns the running average of its weights, and how far it came."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(minutes=asked.minutes * SHARES[name], rate=asked.rate, seed=asked.seed)
    pair = Averaged(PatchModel(name, seed=asked.seed), asked.smoothing)
    optimiser = torch.optim.AdamW(pair.net.parameters(), lr=asked.rate, betas=(0.9, 0.95), weight_decay=0.0)
    now = fit.resume(folder, pair, optimiser, settings)

    def take(now: Progress) -> tuple[int, dict]:
        dice = torch.Generator().manual_seed(place_seed(asked.seed, now.step))
        some = torch.randint(len(learned.labels), (asked.batch,), generator=dice)
        tokens = tokens_of(with_noise(learned.images[some], dice))
        torch.manual_seed(place_seed(asked.seed, now.step))                       # of what is dropped
        optimiser.zero_grad(set_to_none=True)
        loss = pair.net.loss(tokens, learned.labels[some], dice)
        fit.descend(loss, pair.net, optimiser, settings.clip)
        pair.follow(now.step)
        return tokens.shape[0] * tokens.shape[1], {"loss": loss.detach()}

    with fit.open_log(folder / LOG, now) as log:
        def record(now: Progress, rate: float, shown: dict) -> None:
            if now.step % EVERY == 0:
                line = {"model": name, "step": now.step, "seconds": round(now.seconds, 2), "tokens": now.tokens,
                        "loss": round(float(shown["loss"]), 4)}
                if now.step % (5 * EVERY) == 0:
                    line["held_out"] = round(held_out_loss(pair.average, held, 1), 4)
                fit.log_line(log, line)
                progress(fit.share_done(now, settings), f"{name}, loss {line['loss']}")

        if fit.share_done(now, settings) < 1:
            now = fit.run_steps(pair, optimiser, settings, folder, now, take, record, fit.never, clock)
    return pair.average, now


class Averaged(torch.nn.Module):
    """A model in training, and the running average of its weights: what is measured and stored."""

    def __init__(self, net: PatchModel, smoothing: float):
        super().__init__()
        self.net, self.smoothing = net, smoothing
        self.average = copy.deepcopy(net).eval()

    def follow(self, step: int) -> None:
        """Moves the average towards the weights; the first steps count for less."""
        keep = min(self.smoothing, (step + 1) / (step + 10))
        with torch.no_grad():
            for old, new in zip(self.average.parameters(), self.net.parameters(), strict=True):
                old.lerp_(new, 1 - keep)


@torch.no_grad()
def held_out_loss(model: PatchModel, held: Digits, passes: int = MEASURED) -> float:
    """The mean loss on the held-out images, with fixed noise."""
    dice = torch.Generator().manual_seed(1)
    return sum(float(model.loss(tokens_of(with_noise(held.images, dice)), held.labels, dice))
               for _ in range(passes)) / passes


def held_out_losses(stored: Checkpoint, held: Digits) -> dict[str, float]:
    """The held-out loss of every model as it is stored: nats per patch for mixtures, the head's own loss otherwise."""
    return {name: round(held_out_loss(load_model(stored, name), held), 4) for name in SIZES}
