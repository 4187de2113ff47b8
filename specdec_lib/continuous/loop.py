"""Plain and speculative decoding of images: the draft proposes a chain of patches, one forward of the target tests it.

Everything after the first rejected patch is cut off. Images of a batch advance each at its own pace; the forwards are
batched over those that are not complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_lib.continuous.digits import DIM, PATCHES
from specdec_lib.continuous.noise import TARGET, ImageNoise, image_noise, proposals
from specdec_lib.continuous.patch_model import PatchModel
from specdec_lib.continuous.rule import EXACT, DensityRule, accepted, residual
from specdec_lib.continuous.transformer import PatchCache

PLAIN, KEPT, REPLACED, BONUS = 0, 1, 2, 3          # where a patch comes from


@dataclass(frozen=True)
class ImagePlan:
    """How to speculate: `depth` patches a round, the rule, alignment, and the share of patches made without a draft."""

    depth: int = 4
    rule: DensityRule = EXACT
    aligned: bool = True                           # the target's denoising takes the draft's noise
    prefill: float = 0.0                           # rounded up to whole patches; published: 0.05 and 0.15

    def __post_init__(self):
        if not 1 <= self.depth < PATCHES or not 0 <= self.prefill < 1:
            raise ValueError(f"depth is 1 to {PATCHES - 1} and prefill a share below 1, got {self.depth} and "
                             f"{self.prefill}")

    @property
    def first(self) -> int:
        """Patches that the target makes alone."""
        return -int(-self.prefill * PATCHES // 1)


@dataclass
class Decoded:
    """Images in the making and their counts; finished where every image has 16 patches.

    `tokens [n, 16, 4]`, `origin [n, 16]` by the words above, `tries [n, 16]` = proposals for a residual. A position is
    tested once at most, so its origin tells whether its draft was kept, replaced or cut off untested.
    """

    tokens: Tensor
    labels: Tensor
    done: Tensor                                   # patches of each image
    origin: Tensor
    tries: Tensor
    target_forwards: int = 0
    draft_forwards: int = 0
    seconds: float = 0.0
    unresolved: int = 0                            # residuals without a draw: zeros

    @property
    def acceptance(self) -> float:
        """Share of tested patches that were accepted; not a number without any."""
        kept, replaced = (self.origin == KEPT).sum(), (self.origin == REPLACED).sum()
        return float(kept / (kept + replaced))


def begin(labels: Tensor) -> Decoded:
    """No patches yet, for images of these classes."""
    n = len(labels)
    origin, tries = torch.zeros(2, n, PATCHES, dtype=torch.long)
    return Decoded(torch.zeros(n, PATCHES, DIM), labels, torch.zeros(n, dtype=torch.long), origin, tries)


@torch.inference_mode()
def decode_plain(target: PatchModel, labels: Tensor, images: Tensor, seed: int = 0) -> Decoded:
    """Images of these classes by the target alone, patch by patch; `images` [n] are their numbers in the noise."""
    noise, state, began = image_noise(seed, images, target.draws), begin(labels), perf_counter()
    plain_steps(target, state, noise, target.body.cache(len(labels)), PATCHES)
    state.seconds = perf_counter() - began
    return state


@torch.inference_mode()
def decode(target: PatchModel, draft: PatchModel, labels: Tensor, images: Tensor, plan: ImagePlan = ImagePlan(),  # noqa: B008
           seed: int = 0) -> Decoded:
    """Images of these classes by speculation; with the exact rule they have the target's distribution."""
    state, began = begin(labels), perf_counter()
    noise = image_noise(seed, images, target.draws)
    world = World(target, draft, plan, images, seed, noise,
                  noise if plan.aligned else image_noise(seed, images, target.draws, TARGET),
                  target.body.cache(len(labels)), draft.body.cache(len(labels)))
    plain_steps(target, state, world.of_target, world.target_cache, plan.first)
    if plan.first:                                 # the draft reads them once; later it feeds what it has not seen
        rows = torch.arange(len(labels))
        draft.body.step(world.draft_cache, rows, torch.arange(plan.first).expand(len(rows), -1), state.tokens, labels)
        state.draft_forwards += 1
    while (state.done < PATCHES).any():
        one_round(world, state)
    state.seconds = perf_counter() - began
    return state


class World(NamedTuple):
    """What stays the same in all rounds of a decode."""

    target: PatchModel
    draft: PatchModel
    plan: ImagePlan
    images: Tensor
    seed: int
    of_draft: ImageNoise
    of_target: ImageNoise
    target_cache: PatchCache
    draft_cache: PatchCache


def plain_steps(target: PatchModel, state: Decoded, noise: ImageNoise, cache: PatchCache, count: int) -> None:
    """The next `count` patches of every image by the target alone."""
    rows = torch.arange(len(state.labels))
    for slot in range(count):
        hidden = target.body.step(cache, rows, torch.full((len(rows), 1), slot), state.tokens, state.labels)[:, 0]
        density = target.density(hidden, noise.normals[:, slot])
        state.tokens[:, slot] = density.draw(noise.normals[:, slot, -1], noise.picks[:, slot])
        state.done += 1
        state.target_forwards += 1


def one_round(world: World, state: Decoded) -> None:
    """Drafts, tests and replaces once for every image that is not complete."""
    rows = (state.done < PATCHES).nonzero()[:, 0]
    depth = min(world.plan.depth, int((PATCHES - state.done[rows]).max()))
    start = state.done[rows]
    q = draft_chain(world, state, rows, start, depth)
    slots = start[:, None] + torch.arange(depth + 1)
    hidden = world.target.body.step(world.target_cache, rows, slots, state.tokens, state.labels)
    inside = slots.clamp(max=PATCHES - 1)
    p = world.target.density(hidden, world.of_target.normals[rows[:, None], inside])
    state.target_forwards += 1
    drafted = state.tokens[rows[:, None], inside[:, :depth]]
    kept = accepted(p.map(lambda part: part[:, :depth]), q, drafted,
                    world.of_draft.coins[rows[:, None], inside[:, :depth]], world.plan.rule)
    kept |= slots[:, :depth] >= PATCHES            # beyond the image: cut off below
    count = kept.long().cumprod(1).sum(1)
    for step in range(depth):
        fits = (step < count) & (start + step < PATCHES)
        state.origin[rows[fits], start[fits] + step] = KEPT
    rejected = (count < depth) & (start + count < PATCHES)
    replace(world, state, rows[rejected], start[rejected], count[rejected],
            p.map(lambda part: part[rejected]), q.map(lambda part: part[rejected]))
    bonus = (count == depth) & (start + depth < PATCHES)
    last, place = rows[bonus], start[bonus] + depth
    state.tokens[last, place] = p.map(lambda part: part[bonus, depth]).draw(
        world.of_target.normals[last, place, -1], world.of_draft.picks[last, place])
    state.origin[last, place] = BONUS
    state.done[rows] = torch.minimum(start + count + (rejected | bonus), torch.tensor(PATCHES))


def draft_chain(world: World, state: Decoded, rows: Tensor, start: Tensor, depth: int):
    """Writes `depth` drafted patches into the state, as far as they fit; returns their densities [m, depth]."""
    densities = []
    for step in range(depth):
        place = start + step
        slots = torch.stack((place - 1, place), 1) if step == 0 else place[:, None]    # the last two may be unseen
        hidden = world.draft.body.step(world.draft_cache, rows, slots, state.tokens, state.labels)[:, -1]
        inside = place.clamp(max=PATCHES - 1)
        normals = world.of_draft.normals[rows, inside]
        density = world.draft.density(hidden, normals)
        last = normals[:, -1] if world.plan.rule.last_noise else torch.zeros_like(normals[:, -1])
        drawn, fits = density.draw(last, world.of_draft.picks[rows, inside]), place < PATCHES
        state.tokens[rows[fits], place[fits]] = drawn[fits]
        densities.append(density)
        state.draft_forwards += 1
    parts = iter(zip(*(vars(density).values() for density in densities), strict=True))
    return densities[0].map(lambda _: torch.stack(next(parts), 1))


def replace(world: World, state: Decoded, rows: Tensor, start: Tensor, count: Tensor, p, q) -> None:
    """Draws a patch from the residual in the place of the first rejected one."""
    each, place = torch.arange(len(rows)), start + count
    found, tries = residual(
        p.map(lambda part: part[each, count]), q.map(lambda part: part[each, count]),
        lambda begin, size, chosen: proposals(world.seed, world.images[rows[chosen]], place[chosen], begin, size),
        len(rows), DIM, world.plan.rule)
    state.tokens[rows, place] = found
    state.tries[rows, place], state.origin[rows, place] = tries, REPLACED
    state.unresolved += int((found == 0).all(-1).sum())
