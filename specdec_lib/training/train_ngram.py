"""`specdec train ngram`: counts instead of steps, measured and stored as the neural drafters are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter

import torch

from specdec_lib.models.fingerprint import fingerprint
from specdec_lib.models.ngram import Ngram
from specdec_lib.models.shelf import Checkpoint, shelve
from specdec_lib.models.text import Text
from specdec_lib.models.transformer import Transformer
from specdec_lib.training import ngram
from specdec_lib.training.break_even import break_even
from specdec_lib.training.deadline import Deadline
from specdec_lib.training.judge import Tally, together, walk
from specdec_lib.training.live import live
from specdec_lib.training.measuring import LEAST, rounded, some_prompts
from specdec_lib.training.recipes import DEPTH, NGRAM
from specdec_lib.training.train import Order, general, study, where


def train_ngram(order: Order, target: Transformer, text: Text, made: Mapping, say: Callable[[str], None],
                progress: Callable[[int, int, str], None]) -> Checkpoint:
    """The counted, measured and stored trigram of the target's answers."""
    deadline = Deadline(order.minutes)
    lessons = study(order, target, text, deadline, say, progress)
    began = perf_counter()
    learned = [lessons.data[i] for group in lessons.train for i in group]
    arrays = ngram.count((example.output for example in learned), target.vocab)
    model = Ngram(arrays)
    minutes = round((perf_counter() - began) / 60, 2)
    say("measuring")
    by_family = forced(deadline.cut(lessons.held_out(()), 1 / 2), model)
    prompts = deadline.cut(some_prompts(lessons), least=LEAST)
    found = live(f"draft-model(depth={DEPTH})", target, text.facts, prompts, draft=model)
    measured = {"teacher-forced": {NGRAM: {**rounded(together(by_family).told()), "by_family": {
                    family: rounded(tally.told()) for family, tally in sorted(by_family.items())}}},
                "live": {NGRAM: {"prompts": prompts.taken, **rounded(together(found).told())}}}
    paid = break_even(NGRAM, model, target, measured, where({**made, "device": str(target.device)}))
    card = {"target": order.target, "measured": measured, "break_even": paid,
            "settings": {"order": 3, "counts of at least": 2},
            "parameters": sum(array.size for array in arrays.values()),
            "made": {**made, "minutes": minutes, "tokens_seen": sum(len(example.output) for example in learned),
                     "data": ", ".join(sorted({example.source for example in lessons.data}))},
            "limits": ["It knows the last two tokens and nothing else.", general(len(lessons.ids))[2]]}
    from safetensors.numpy import save_file

    made_for = {"tokenizer": fingerprint(target, text)["tokenizer"]}
    done = shelve(order.out, NGRAM, lambda path: save_file(arrays, path), card, made_for)
    return Checkpoint(NGRAM, {}, {}, done)


def forced(batches: Iterable, model: Ngram) -> dict[str, Tally]:
    """Teacher-forced tallies by family: the best token after every two, against the target's."""
    out: dict[str, Tally] = {}
    for batch, families in batches:
        for i, family in enumerate(families):
            size = int(batch.stop[i])
            tokens = batch.tokens[i, :size].tolist()
            right = torch.tensor([model.best(tokens[:t + 1]) == int(batch.top_ids[i, t, 0]) for t in range(size)])
            chains = torch.stack([torch.nn.functional.pad(right[k:], (0, k)) for k in range(DEPTH)])
            out[family] = out.get(family, Tally()).plus(walk(chains, int(batch.start[i]), size))
    return out
