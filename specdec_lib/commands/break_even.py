"""`specdec break-even`: for existing checkpoints, the tokens per forward they need and those they reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from specdec_lib.bench.environment import read_ngram
from specdec_lib.bench.provenance import card_provenance, provenance, without_folders
from specdec_lib.checkpoints.card import lacking_in, read_card, write_card
from specdec_lib.checkpoints.checkpoint_files import CheckpointFolder, checkpoint_names
from specdec_lib.commands.train import open_target
from specdec_lib.cost.break_even import CONTEXT, NEW
from specdec_lib.training.eval.break_even import DRAFTERS, break_even
from specdec_lib.training.recipes import NGRAM
from specdec_lib.types import Refusal

NOT_COUNTED = ("not counted",) * 2               # of a target that transformers runs
COLUMNS = ("draft", "verify", "tokens_per_target_forward")
HEADS = (("", "weights read", "multiplied", "measured", "tokens per forward"),
         ("drafter", *("draft + verify = needed",) * 3, "reached: forced, live"))


def break_evens(drafters: Sequence[str], target: str, device: str, dtype: str, threads: int | None, shelf: Path,
                depth: int, context: int, repeats: int, write: bool = False,
                say: Callable[[str], None] = lambda line: None,
                progress: Callable[[int, int, str], None] = lambda *now: None) -> dict[str, dict]:
    """The break-even of these checkpoints, by default of all in the folder; `write` stores it in their cards.

    Refusal for a name that is no drafter or has no checkpoint here, and for a target that it does not fit.
    """
    if depth < 1 or repeats < 1 or context <= NEW:
        raise Refusal(f"a break-even takes a depth and repeats of at least 1 and a context above {NEW}, got {depth}, "
                      f"{repeats} and {context}")
    drafters = tuple(drafters) or tuple(name for name in checkpoint_names(shelf) if name in DRAFTERS)
    for name in drafters:
        if name not in DRAFTERS:
            raise Refusal(f"there is no drafter named {name!r}; there are: {', '.join(DRAFTERS)}")
        card = read_card(shelf, name)
        lacking = ["name"] * ("name" not in card) + lacking_in(card)
        if write and lacking:
            raise Refusal(f"the card of {name} in {without_folders(str(shelf))} lacks {', '.join(lacking)}, so nothing"
                          f" is written into it: leave --write out, or make it again with `specdec train {name}`")
    if not drafters:
        raise Refusal(f"there is no trained drafter in {without_folders(str(shelf))}: `specdec train eagle` makes one")
    lm, text, device, dtype = open_target(target, device, dtype, threads, say)
    refuse_long_context(context, lm.context)
    if threads is not None:
        torch.set_num_threads(threads)
    kept, made, out = CheckpointFolder(shelf, lm, text, target, say, {NGRAM: read_ngram}), provenance(), {}
    where = {key: value for key, value in card_provenance(made, dtype).items() if key != "torch"}
    where |= {"device": device, "load": made["machine"]["load"]}
    for place, name in enumerate(drafters):
        progress(place, len(drafters), name)
        card = read_card(shelf, name)
        out[name] = break_even(name, kept[name], lm, card.get("measured", {}), where, depth, context, repeats)
        if write:
            write_card(shelf, name, {**read_card(shelf, name), "break_even": out[name]})     # as it is by now
    return out


def refuse_long_context(context: int, held: int | None) -> None:
    """Raises Refusal for a context that was asked for and would be cut; the default one is cut to what fits."""
    if held is not None and context != CONTEXT and context > held // 2:
        raise Refusal(f"a break-even is measured at half of the target's context at most, {held // 2} tokens, and"
                      f" --context asks for {context}: give a smaller one")


def break_even_rows(found: Mapping[str, Mapping]) -> Iterator[tuple[str, ...]]:
    """A row for each part of each drafter: its costs in plain forwards with their sum, and what it reached."""
    for one in found.values():
        for part, sides in one.items():
            if isinstance(sides, Mapping):
                counted = [side(cost) for cost in sides["expected"].values()] if sides["expected"] else NOT_COUNTED
                rates = [f"{value:.2f}" for value in sides["reached"].values() if value is not None]
                yield part, *counted, side(sides["measured"]), ", ".join(rates) or "not measured"


def side(cost: Mapping[str, float]) -> str:
    """draft + verify = needed."""
    draft, verify, needed = (cost[name] for name in COLUMNS)
    return f"{draft:.2f} + {verify:.2f} = {needed:.2f}"


def break_even_table(found: Mapping[str, Mapping]) -> str:
    """The rows for a terminal, with a sentence on the settings."""
    lines = [*HEADS, *break_even_rows(found)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    told = "\n".join("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
                     for line in lines)
    one = next(iter(found.values()))
    return (f"{told}\nchains of {one['depth']} at {one['context']} tokens of context, costs in plain forwards; the"
            f" first two are computed, the third is the median of {one['repeats']} on {one['machine']},"
            f" threads: {one['threads']}, {one['dtype']}")
