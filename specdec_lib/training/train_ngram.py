"""`specdec train ngram`: counts a trigram, measured and stored as the neural drafters are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter

import torch

from specdec_lib.checkpoints.checkpoint_files import Checkpoint, replace_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.heads.base import Target
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.ngram import Ngram
from specdec_lib.training.data import ngram_counts
from specdec_lib.training.data.dataset import Dataset
from specdec_lib.training.eval.break_even import break_even
from specdec_lib.training.eval.card import LEAST, rounded, some_prompts
from specdec_lib.training.eval.decoding import decode_live
from specdec_lib.training.eval.teacher_forced import Tally, sum_tallies, walk_answer
from specdec_lib.training.pipeline import TrainingOrder, general_limits, machine_facts, prepare_dataset
from specdec_lib.training.recipes import DEPTH, NGRAM
from specdec_lib.training.time_budget import TimeBudget


def train_ngram(order: TrainingOrder, target: Target, text: Tokenizer, made: Mapping, say: Callable[[str], None],
                progress: Callable[[int, int, str], None],
                prepare: Callable[..., Dataset] | None = None) -> Checkpoint:
    """Counts, measures and stores the trigram of the target's answers; `prepare` is as for `train_drafter`."""
    deadline = TimeBudget(order.minutes)
    lessons = (prepare or prepare_dataset)(order, target, text, deadline, say, progress)
    began = perf_counter()
    learned = [lessons.data[i] for group in lessons.train for i in group]
    arrays = ngram_counts.count_ngrams((example.output for example in learned), target.vocab)
    model = Ngram(arrays)
    minutes = round((perf_counter() - began) / 60, 2)
    say("measuring")
    by_family = ngram_tallies(deadline.cut(lessons.held_out(()), 1 / 2), model)
    prompts = deadline.cut(some_prompts(lessons), least=LEAST)
    found = decode_live(f"draft-model(depth={DEPTH})", target, text.facts, prompts, draft=model)
    measured = {"teacher-forced": {NGRAM: {**rounded(sum_tallies(by_family).told()), "by_family": {
                    family: rounded(tally.told()) for family, tally in sorted(by_family.items())}}},
                "live": {NGRAM: {"prompts": prompts.taken, **rounded(sum_tallies(found).told())}}}
    paid = break_even(NGRAM, model, target, measured, machine_facts({**made, "device": str(target.device)}))
    card = {"target": order.target, "measured": measured, "break_even": paid,
            "settings": {"order": 3, "counts of at least": 2},
            "parameters": sum(array.size for array in arrays.values()),
            "made": {**made, "minutes": minutes, "tokens_seen": sum(len(example.output) for example in learned),
                     "data": lessons.sources},
            "limits": ["It knows the last two tokens and nothing else.", general_limits(len(lessons.ids))[2]]}
    from safetensors.numpy import save_file

    made_for = {"tokenizer": fingerprint(target, text)["tokenizer"]}
    done = replace_checkpoint(order.out, NGRAM, lambda path: save_file(arrays, path), card, made_for)
    return Checkpoint(NGRAM, {}, {}, done)


def ngram_tallies(batches: Iterable, model: Ngram) -> dict[str, Tally]:
    """Teacher-forced tallies by family: the trigram's best token after every two, against the target's."""
    out: dict[str, Tally] = {}
    for batch, families in batches:
        for i, family in enumerate(families):
            size = int(batch.stop[i])
            tokens = batch.tokens[i, :size].tolist()
            right = torch.tensor([model.best(tokens[:t + 1]) == int(batch.top_ids[i, t, 0]) for t in range(size)])
            chains = torch.stack([torch.nn.functional.pad(right[k:], (0, k)) for k in range(DEPTH)])
            out[family] = out.get(family, Tally()).plus(walk_answer(chains, int(batch.start[i]), size))
    return out
