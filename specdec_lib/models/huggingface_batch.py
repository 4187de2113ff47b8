"""Many sequences at once through a model that transformers runs: for making data, not for decoding fast.

Rows end in the same column of one cache, so a shorter text has empty columns before it, which the mask hides. A trial
call finds out whether the model obeys such a mask; where it does not, `rows` is 1 and no column is ever empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.huggingface_cache import new_past

FED = 512                                          # tokens of a text that are fed at once
CLOSE = 0.05                                       # of the logits' spread: how far rounding may move them


class BatchedHuggingFace:
    """Rows of a batch, each with a text of its own: what `BatchedLlama` does, with the model's own forward."""

    ids: Tensor | None = None                      # no restricted head
    blocks = 1                                     # of the cache

    def __init__(self, model):
        self.model, self.device = model, model.device
        self.options = frozenset(inspect.signature(model.forward).parameters)
        self.past, self.lengths = new_past(), torch.zeros(0, dtype=torch.long, device=self.device)
        self.born: list[int] = []                  # per row, length minus steps when it was filled: no transfer
        self.steps = 0
        self.rows = None if self.obeys_padding() else 1           # at most; None: as many as memory holds

    @property
    def sizes(self) -> list[int]:
        """Per row at least as many tokens as it holds, without asking the device."""
        return [self.steps + born for born in self.born]

    def prefill(self, sequences: Sequence[Sequence[int]], rows: Sequence[int] | None = None) -> None:
        """Feeds these texts, computing no logits: into these rows, which forget theirs, or into a new batch.

        A text may be empty: one token of it, the next to be fed, is what `step` takes.
        """
        if rows is None:
            rows, self.steps, self.born, self.past = range(len(sequences)), 0, [0] * len(sequences), new_past()
            self.lengths = torch.zeros(len(sequences), dtype=torch.long, device=self.device)
        if len(rows) != len(sequences) or not sequences:
            raise ValueError(f"{len(sequences)} texts do not fill {len(rows)} rows")
        for row, text in zip(rows, sequences, strict=True):
            self.born[row], self.lengths[row] = len(text) - self.steps, len(text)
        read = {row: self.read(text) for row, text in zip(rows, sequences, strict=True) if len(text)}
        if read:
            self.rebuild(range(len(self.born)), read)

    @torch.no_grad()
    def step(self, tokens: Tensor, alive: Tensor | None = None) -> Tensor:
        """Feeds one token a row [rows]; raw logits [rows, V].

        Rows that are not `alive` [rows] forget their texts, and their logits mean nothing.
        """
        if len(tokens) != len(self.lengths):
            raise ValueError(f"{len(tokens)} tokens for {len(self.lengths)} rows")
        at = self.lengths if alive is None else torch.where(alive, self.lengths, 0)
        width = self.past.get_seq_length()
        seen = torch.arange(width + 1, device=self.device) >= width - at[:, None]
        given = {"input_ids": tokens[:, None], "attention_mask": seen.long(), "position_ids": at[:, None]}
        logits = self.forward(given, self.past)
        self.lengths, self.steps = at + 1, self.steps + 1
        return logits

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with these rows alone, in this order."""
        self.lengths = self.lengths[torch.tensor(list(rows), dtype=torch.long, device=self.device)]
        self.born = [self.born[row] for row in rows]
        self.rebuild(rows, {})

    @torch.no_grad()
    def read(self, text: Sequence[int]):
        """A cache with this text alone."""
        past = new_past()
        for at in range(0, len(text), FED):
            self.forward({"input_ids": torch.tensor([list(text[at:at + FED])], device=self.device)}, past)
        return past

    def forward(self, given: dict, past) -> Tensor:
        """Feeds rows of the same length into this cache; logits [rows, V] after the last column."""
        given = {name: value for name, value in given.items() if name != "position_ids" or name in self.options}
        if "logits_to_keep" in self.options:
            given["logits_to_keep"] = 1
        return self.model(**given, past_key_values=past, use_cache=True).logits[:, -1]

    def rebuild(self, rows: Sequence[int], read: dict) -> None:
        """The cache of these rows with as few columns as hold their texts; `read` has those of rows that are new."""
        width, fresh = max(self.sizes, default=0), new_past()
        like = next(iter(read.values()), self.past)
        for index, layer in enumerate(like.layers):
            held = self.past.layers[index] if self.past.layers else None
            for_both = []
            for kind in ("keys", "values"):
                _, heads, _, size = getattr(layer, kind).shape
                new = getattr(layer, kind).new_zeros(len(rows), heads, width, size)
                if held is not None:
                    new = right_aligned(getattr(held, kind)[list(rows)], width)
                for row, alone in read.items():
                    new[row] = right_aligned(getattr(alone.layers[index], kind)[0], width)
                for_both.append(new)
            fresh.update(*for_both, index)
        self.past = fresh

    def obeys_padding(self) -> bool:
        """Whether a text scores beside a longer one as alone: a trial with two short texts."""
        vocab = self.model.config.get_text_config().vocab_size
        texts = [[token % vocab for token in text] for text in ((3, 1, 2), (5, 4, 3, 2, 1, 6))]
        try:
            together = self.scores(texts)
            alone = torch.cat([self.scores([text]) for text in texts])
        except Exception:                          # a model that does not take the mask fails with any error
            return False
        return bool((together - alone).abs().max() <= CLOSE * alone.std())

    def scores(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Logits [rows, V] after two steps of these texts, in a new batch."""
        self.prefill([text[:-2] for text in texts])
        self.step(torch.tensor([text[-2] for text in texts], device=self.device))
        return self.step(torch.tensor([text[-1] for text in texts], device=self.device)).float()


def right_aligned(kept: Tensor, width: int) -> Tensor:
    """The last `width` columns [..., width, d] of what is kept, with empty ones before them where it has fewer."""
    return F.pad(kept, (0, 0, max(0, width - kept.shape[-2]), 0))[..., -width:, :] if width else kept[..., :0, :]
