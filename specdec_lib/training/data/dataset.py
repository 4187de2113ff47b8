"""A dataset: the examples, the draft vocabulary, the batches and the features that drafters learn from.

It depends on the records and the target alone; drafters trained on the same data read the same features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from specdec_lib.cards import TokenizerFacts
from specdec_lib.heads.base import Target
from specdec_lib.hub.chat_template import History
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.batches import Batch, grouped, order
from specdec_lib.training.data.device_features import DeviceFeatures
from specdec_lib.training.data.examples import Example, common_start, examples, frequent, learned_from
from specdec_lib.training.data.features import Features
from specdec_lib.training.nets.eagle import default_taps
from specdec_lib.training.nets.early_exit import default_exits
from specdec_lib.types import Refusal

ROWS = 8192                                        # of the draft vocabulary
BATCH = {"cpu": 2048}                              # padded tokens in a step
LARGE = 16384                                      # on another device, which is not busy with fewer
LONGEST = 640                                      # tokens of an example
LONGEST_PROMPT = LONGEST - 2                       # of its prompt: less than two tokens of an answer teach nothing
WATCHED = 1536                                     # of one that is only measured
LOOK = 8                                           # held-out batches measured while training


@dataclass(frozen=True)
class Dataset:
    """Groups of examples to train on, held-out groups to measure with, and the target's features of them."""

    data: tuple[Example, ...]
    ids: Tensor                                    # [rows] the draft vocabulary, sorted
    train: tuple[tuple[int, ...], ...]
    held: tuple[tuple[int, ...], ...]              # in random order, so that the first few represent all
    features: Features | DeviceFeatures
    watched: tuple[tuple[int, ...], ...] = ()      # answers to other prompts, measured beside the held-out ones

    @property
    def tokens(self) -> int:
        """Tokens of all training examples, prompts and answers."""
        return sum(len(self.data[i]) for group in self.train for i in group)

    @property
    def sources(self) -> str:
        """The families of the examples to learn from and to hold out, in alphabetical order."""
        own = {i for groups in (self.train, self.held) for group in groups for i in group}
        return ", ".join(sorted({self.data[i].source for i in own}))

    def held_out(self, levels: Sequence[int], count: int | None = None) -> Iterator[tuple[Batch, list[str]]]:
        """Held-out batches and the family of each of their examples."""
        yield from self.batches(self.held[:count], levels)

    def batches(self, groups: Iterable[Sequence[int]], levels: Sequence[int]) -> Iterator[tuple[Batch, list[str]]]:
        """The batches of these groups and the family of each of their examples."""
        for group in groups:
            yield self.features(group, levels), [self.data[i].source for i in group]


class ChatEncoder(Protocol):
    """What a dataset asks of a tokenizer."""

    facts: TokenizerFacts

    def encode_chat(self, history: History, /) -> tuple[int, ...]: ...


def make_dataset(target: Target, text: ChatEncoder, records: Iterable[Mapping], folder: Path | None,
                 forbidden: frozenset[str] = frozenset(), rows: int = ROWS, batch: int | None = None,
                 limit: float = 8e9, watched: Iterable[Mapping] = (),
                 learn_prompts: bool = False, say: Callable[[str], None] = lambda line: None) -> Dataset:
    """The dataset of these records for this target. Refusal where nothing is left to train on or to measure with.

    `learn_prompts`: in training, the tokens of prompts are drafted too, from where they differ; nothing else changes.
    `watched` are answers whose greedy ones are measured and none is trained on; their prompts are to be forbidden.
    """
    longest, batch = min(LONGEST, target.context or LONGEST), batch or BATCH.get(target.device.type, LARGE)
    long: list[bool] = []                          # of each prompt, whether it leaves no room for an answer

    def encode(turns: History) -> tuple[int, ...]:
        ids = text.encode_chat(turns)
        long.append(len(ids) > longest - 2)
        return ids

    data = tuple(examples(records, encode, forbidden, longest))
    train = [i for i, example in enumerate(data) if not example.held_out]
    held = [i for i, example in enumerate(data) if example.held_out and example.temperature == 0]
    dropped = f"{sum(long)} with prompts of {longest - 1} or more tokens left out" if any(long) else ""
    refuse_too_few(len(train), len(held), dropped)
    ids = torch.tensor(frequent((data[i] for i in train), rows, text.facts.end))
    if len(ids) < 2:
        raise Refusal(f"the answers to train on hold one token alone, {int(ids[0])}, and a draft vocabulary needs two:"
                      " give other --data or more --prompts")
    levels = sorted({*default_taps(target.layers), *default_exits(target.layers)})
    say(f"{len(train)} examples with {sum(len(data[i]) for i in train):,} tokens to train on, {len(held)} held out, "
        f"{len(ids)} tokens in the draft vocabulary{dropped and f', {dropped}'}")
    if learn_prompts:
        first = max(1, common_start(data))
        data = tuple(example if example.held_out else learned_from(example, first) for example in data)
    groups = batches_of(data, train, batch)
    held = batches_of(data, held, batch)
    held = tuple(held[i] for i in order(len(held), 0, 0))
    own = len(data)
    data += watched_examples(list(watched), text, min(WATCHED, target.context or WATCHED), say)
    return Dataset(data, ids, groups, held, features_of(target, data, levels, folder, limit),
                   batches_of(data, range(own, len(data)), batch))


def watched_examples(records: Sequence[Mapping], text: ChatEncoder, longest: int,
                     say: Callable[[str], None]) -> tuple[Example, ...]:
    """The greedy examples of these records, as drafts are measured greedily; says so where there are none."""
    found = tuple(one for one in examples(records, text.encode_chat, longest=longest) if one.temperature == 0)
    if records and not found:
        say(f"none of the answers to watch is measured: with their prompts they do not fit into {longest} tokens")
    return found


def features_of(target: Target, data: Sequence[Example], levels: Sequence[int], folder: Path | None,
                limit: float) -> Features | DeviceFeatures:
    """The target's features: in the memory of the device that it runs on, else on disk in `folder`."""
    if isinstance(target, Transformer) and target.device.type != "cpu":
        return DeviceFeatures(target, data, limit)
    return Features(target, data, levels, folder, limit)


def refuse_too_few(train: int, held: int, dropped: str = "") -> None:
    """Raises Refusal where there is nothing to train on or nothing to measure with; `dropped` says what was left out.
    """
    if not train or not held:
        raise Refusal(f"there {'is 1 example' if train == 1 else f'are {train} examples'} to train on and"
                      f" {held or 'no'} greedy {'one' if held == 1 else 'ones'} of held-out prompts to measure with"
                      f"{dropped and f', {dropped}'}:"
                      " more data is needed, give more --minutes or more --prompts, or more of it with --data")


def batches_of(data: Sequence[Example], chosen: Sequence[int], batch: int) -> tuple[tuple[int, ...], ...]:
    """Groups of the chosen examples, as indices into `data`."""
    return tuple(tuple(chosen[i] for i in group) for group in grouped([data[i] for i in chosen], batch))
