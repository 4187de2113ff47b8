"""The tokens that a drafter can draft: those it was trained for, and every other token that the text already holds.

A drafter reads the output rows of the most frequent tokens alone (FR-Spec, Zhao et al. 2025), since all rows would cost
more than its layer does. The rare words of an answer are thereby lost to it, although most of them stand in the prompt.
So the rows of the text's own tokens join: the prompt's at the first draft, those of the answer as it grows. They are
the target's rows, as the trained ones are, so nothing is trained for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.device import to_device
from specdec_lib.models.llama.dense_linear import DenseLinear
from specdec_lib.models.llama.weights import Linear, linear

BLOCK = 64                                         # rows are packed in multiples of it: few shapes of kernels
NEVER = -1e30                                      # a logit of probability zero; -inf would make an entropy NaN


class TextRows(NamedTuple):
    """What the tokens of a text need in order to join: made once for a target, read in every decode."""

    every: Tensor                                  # [V, hidden] the target's output row of every token
    trained: frozenset[int]                        # the tokens that are there already, on the host


def text_rows(trained: Tensor, every: Tensor | None) -> TextRows | None:
    """The rows `every` [V, hidden] beside these trained tokens; None without rows."""
    return None if every is None else TextRows(every, frozenset(trained.tolist()))


class DraftVocabulary:
    """The tokens `ids` that can follow the text last read; those after the trained ones are `added`. One per decode.

    Without the rows of a text no token joins.
    """

    def __init__(self, trained: Tensor, text: TextRows | None = None):
        self.trained, self.ids = trained, trained
        self.rows, self.known = (None, frozenset()) if text is None else text
        self.text: tuple[int, ...] = ()
        self.added: dict[int, None] = {}           # in the order in which the text has them
        self.head: Linear | None = None            # the rows of `added`, and room for more
        self.every = trained                       # `ids` and room for more; what is in use is never overwritten

    def read(self, tokens: tuple[int, ...]) -> None:
        """Takes in the tokens of this text; one that does not continue the last one starts anew."""
        if self.rows is None or tokens is self.text:
            return
        goes_on = tokens[:len(self.text)] == self.text
        new = dict.fromkeys(tokens[len(self.text):] if goes_on else tokens)
        before = self.added if goes_on else {}
        more = [token for token in new if token not in self.known and token not in before]
        fresh, self.text = not goes_on and bool(self.added), tokens
        if more or fresh:
            self.added = before | dict.fromkeys(more)
            self.grow(self.rows, more) if self.has_room(len(before)) else self.pack(self.rows)

    def has_room(self, before: int) -> bool:
        """Whether the added tokens fit beside those `before` that already have their rows."""
        return before > 0 and isinstance(self.head, DenseLinear) and len(self.added) <= self.head.out

    def grow(self, rows: Tensor, more: Sequence[int]) -> None:
        """Writes the rows of these tokens, the last of `added`, behind those that are there."""
        assert isinstance(self.head, DenseLinear)  # `has_room` asked
        stop = len(self.trained) + len(self.added)
        with torch.inference_mode():               # in which these tensors may have been made
            for place, token in enumerate(more, stop - len(more)):
                self.every[place] = token
                self.head.put(place - len(self.trained), rows[token])
        self.ids = self.every[:stop]

    def pack(self, rows: Tensor) -> None:
        """Gathers the rows of the added tokens."""
        if not self.added:
            self.ids, self.head = self.trained, None
            return
        added = to_device(list(self.added), self.trained.device)
        room = -(-len(added) // BLOCK) * BLOCK - len(added)
        self.every = torch.cat((self.trained, F.pad(added, (0, room))))
        self.ids = self.every[:len(self.trained) + len(added)]
        self.head = linear(F.pad(rows[added], (0, 0, 0, room)).contiguous())

    def joined(self, logits: Tensor, read: Tensor) -> Tensor:
        """The logits [n, len(ids)], from those of the trained tokens and what their rows read [n, hidden]."""
        if self.head is None:
            return logits
        return torch.cat((logits, self.head(read)[:, :len(self.added)]), 1)


class SideBySide(NamedTuple):
    """The vocabularies of several texts, a row each; columns beyond a text's own have the logit `NEVER`."""

    ids: Tensor                                    # [texts, columns]
    rows: Tensor | None = None                     # [texts, most that any of them added, hidden]; None: none did
    own: Tensor | None = None                      # [texts, most added] bool

    def joined(self, logits: Tensor, read: Tensor) -> Tensor:
        """The logits [n, columns] of a row of each of the first n texts; see `DraftVocabulary.joined`."""
        if self.rows is None or self.own is None:
            return logits
        more = (self.rows[:len(read)] @ read[:, :, None])[..., 0]
        return torch.cat((logits, torch.where(self.own[:len(read)], more, NEVER)), 1)


def side_by_side(vocabularies: Sequence[DraftVocabulary]) -> SideBySide:
    """These vocabularies of one network, so that a product serves them all."""
    first, counts = vocabularies[0], [len(one.added) for one in vocabularies]
    trained = first.trained.expand(len(counts), -1)
    most = max(counts)
    if not most or first.rows is None:
        return SideBySide(trained)
    flat = [token for one in vocabularies for token in (*one.added, *[0] * (most - len(one.added)))]
    added = to_device(flat, trained.device).view(-1, most)
    own = torch.arange(most, device=trained.device) < to_device(counts, trained.device)[:, None]
    return SideBySide(torch.cat((trained, added), 1), first.rows[added], own)
