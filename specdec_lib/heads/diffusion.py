"""A small diffusion language model as a drafter: one forward gives the distributions of a whole block of tokens.

A few trained layers between the target's embedding and some of its output rows, as in `draft_lm.py`, and one learned
vector that stands in for an unknown token. The committed text is causal and cached; behind its last token, the anchor,
come masks, which see the text and each other. The anchor sees no mask, so its row is kept, and a block of one is the
plain draft model. Sources: masked diffusion (Sahoo et al. 2024, MDLM), one causal text with a block of masks behind it
(TiDAR, arXiv 2511.08923), drafting with a diffusion model (Christopher et al. 2024, SpecDiff).

In pretrained diffusion models (`dream_llada.py`) text and masks all see each other: attention is `full`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from specdec_lib.heads.base import PerTarget, TargetWeights, checked_tensors
from specdec_lib.heads.draft_lm import draft_lm_weights
from specdec_lib.models.bidirectional import Bidirectional
from specdec_lib.models.device import to_host
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.row_stats import packed_stats, row_stats_of, tells
from specdec_lib.models.llama.weights import LlamaWeights
from specdec_lib.scores import RowStats, Scores
from specdec_lib.types import ROOT, Draft, Lattice, Refusal


def diffusion_weights(state: Mapping[str, Tensor], target: TargetWeights) -> LlamaWeights:
    """The draft model of these tensors; its embedding has one row more than the target's: `mask`, token id V.

    The larger table is a copy (57 MB for SmolLM2-135M in bfloat16), so that a mask is looked up like any token. Refusal
    where the tensors do not fit the target.
    """
    small = draft_lm_weights(state, target)
    mask = checked_tensors(state, {"mask": (target.shape.hidden,)}, small)["mask"]
    return replace(small, embedding=torch.cat((small.embedding, mask[None])))


ATTENTION = CAUSAL, FULL = ("causal", "full")


class DiffusionLM:
    """Drafts by `lattice(tokens, depth)`; `forwards` counts passes, `fed` rows; its cache aligns itself.

    `shifted`: a slot's row gives the distribution of the token after it, so the anchor predicts and k tokens take k - 1
    masks; where it is false (LLaDA), a mask's row gives the distribution of its own token, and k tokens take k masks.
    `window` is the number of tokens of text and block together, by default the model's context; see `unseen`.

    `attention` is `causal` (the text sees what is before it, and its rows are kept) or `full` (text and masks all see
    each other, so all rows are fed again each time, and k tokens take k masks at their own positions, shifted or not).
    `mask` is the token id of a mask, by default the embedding's last row.
    """

    def __init__(self, weights: LlamaWeights, shifted: bool = True, window: int | None = None, attention: str = CAUSAL,
                 mask: int | None = None):
        if attention not in ATTENTION:
            raise Refusal(f"attention is {' or '.join(ATTENTION)}, got {attention!r}")
        self.full = attention == FULL
        self.model = Bidirectional(weights) if self.full else Transformer(weights, bidirectional=True)
        self.model.tells = False                   # of its logits only distributions are asked
        self.mask, self.shifted = len(weights.embedding) - 1 if mask is None else mask, shifted
        self.window = weights.shape.context if window is None else min(window, weights.shape.context)
        if self.window < 4:
            raise Refusal(f"a window of {self.window} tokens has no room for text: give 4 or more")

    @property
    def ids(self) -> Tensor:
        """The tokens [rows] that it can draft."""
        ids = self.model.weights.ids
        assert ids is not None                     # every drafter has a restricted vocabulary
        return ids

    @property
    def forwards(self) -> int:
        return self.model.forwards

    @property
    def fed(self) -> int:
        return self.model.fed

    def masks(self, depth: int) -> int:
        """How many masks `depth` slots take."""
        return depth - 1 if self.shifted and not self.full else depth

    def unseen(self, length: int, depth: int) -> int:
        """How many leading tokens of a text of this length are outside the window when it drafts `depth` slots.

        Where rows are kept, the window moves in strides of half its size, so that they are computed again once in many
        rounds; with full attention it moves token by token. The result depends on the lengths alone. Raises Refusal for
        more slots than half a window holds.
        """
        half = self.window // 2
        if self.masks(depth) >= half:
            raise Refusal(f"a window of {self.window} tokens has no room for a draft of {depth}: draft fewer than"
                          f" {half}")
        stride = 1 if self.full else half
        return max(0, -(-(length + self.masks(depth) - self.window) // stride)) * stride

    def lattice(self, tokens: tuple[int, ...], depth: int, steps: int = 1, top: int = 16) -> Lattice:
        """The `top` most probable tokens of each slot, best first, with log-probabilities [depth, top]."""
        logits = self.logits(tokens, depth, steps)
        told = packed_stats(logits, self.ids, min(top, len(self.ids)))
        value, ids = told[:, :-2].chunk(2, 1)
        return Lattice(ids.long(), (value - told[:, -2:-1]).to(torch.promote_types(logits.dtype, torch.float32)))

    def scores(self, tokens: tuple[int, ...], depth: int, steps: int = 1) -> Scores:
        """`dists` as scores; on a device their statistics come to the host in one transfer."""
        logits = self.logits(tokens, depth, steps)
        return Scores(logits, self.ids, self.row_stats(logits))

    def row_stats(self, logits: Tensor) -> RowStats | None:
        """The statistics of these slots, moved to the host in one transfer; None where they would cost much."""
        return row_stats_of(logits, self.ids) if tells(logits.device, logits.dtype) else None

    def logits(self, tokens: tuple[int, ...], depth: int, steps: int = 1) -> Tensor:
        """Numbers [depth, len(ids)] whose softmax is `dists`: of one step the logits as the model gives them."""
        self.check(tokens, depth, steps)
        return self.forward(tokens, depth, {}) if min(steps, depth) == 1 else self.dists(tokens, depth, steps)

    def check(self, tokens: tuple[int, ...], depth: int, steps: int) -> None:
        """Raises ValueError for no tokens, slots or steps."""
        if not tokens or depth < 1 or steps < 1:
            raise ValueError(f"at least one token, slot and step is needed, got {len(tokens)}, {depth} and {steps}")

    def dists(self, tokens: tuple[int, ...], depth: int, steps: int = 1) -> Tensor:
        """Log-probabilities [depth, len(ids)] of the next `depth` slots, in single precision at least.

        A slot's row comes from the step that committed it, see `denoise`.
        """
        return self.denoise(tokens, depth, steps)[0]

    def denoise(self, tokens: tuple[int, ...], depth: int, steps: int = 1) -> tuple[Tensor, dict[int, int]]:
        """The rows of `dists`, and the tokens that were committed before the last step, by slot.

        With several `steps` the most confident slots are committed after each, an equal share of those that are left,
        and the others are predicted again with those tokens in place (the rule of MaskGIT, Chang et al. 2022, without
        noise). So a later slot may be committed before an earlier one. ValueError for no tokens, slots or steps.
        """
        self.check(tokens, depth, steps)
        steps, rows, known = min(steps, depth), {}, {}
        for left in range(steps, 1, -1):
            logp = self.once(tokens, depth, known)
            best = logp.max(-1)
            both = to_host(torch.stack((best.values.double(), self.ids[best.indices].double())))
            sure, found = both[0].tolist(), [int(token) for token in both[1].tolist()]
            open_slots = sorted(set(range(depth)) - set(known), key=lambda slot, sure=sure: (-sure[slot], slot))
            for slot in open_slots[:-(-len(open_slots) // left)]:
                rows[slot], known[slot] = logp[slot], found[slot]
        last = self.once(tokens, depth, known)
        return torch.stack([rows.get(slot, last[slot]) for slot in range(depth)]) if rows else last, known

    def once(self, tokens: tuple[int, ...], depth: int, known: Mapping[int, int]) -> Tensor:
        """The log-probabilities of one `forward`, in single precision at least."""
        logits = self.forward(tokens, depth, known)
        return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)

    def forward(self, tokens: tuple[int, ...], depth: int, known: Mapping[int, int]) -> Tensor:
        """The logits of one forward, in which the slots of `known` hold a token and the others a mask."""
        masks = self.masks(depth)
        canvas = Draft(tuple(known.get(slot, self.mask) for slot in range(masks)), tuple(range(ROOT, masks - 1)))
        logits = self.model(tokens[self.unseen(len(tokens), depth):], canvas).given
        return logits[:depth] if self.shifted else logits[1:]


PACKED = PerTarget(lambda checkpoint, target: diffusion_weights(checkpoint.state, target))


def diffusion_lm(checkpoint, target: TargetWeights, window: int | None = None) -> DiffusionLM:
    """A loaded checkpoint ready to draft, its cache empty; its weights are packed once for all decodes."""
    meta = checkpoint.meta
    return DiffusionLM(PACKED(checkpoint, target), bool(meta.get("shifted", True)), window,
                       meta.get("attention", CAUSAL))
