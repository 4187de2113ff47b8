"""The data drafters are trained on: what the target answers to prompts of its own and to those of a file.

Half of the answers are greedy, three in ten at temperature 0.7, two in ten at 1, so that a drafter meets the texts it
will be asked to draft. A killed run goes on where it was, as `begun_shard` says, and makes what it would have made.
Where a prompt has several turns, the target answers one after the other.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.files import json_sha256
from specdec_lib.heads.base import Target
from specdec_lib.hub.chat_settings import USUAL
from specdec_lib.hub.chat_template import with_system
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.huggingface_batch import BatchedHuggingFace
from specdec_lib.models.llama.batched import BatchedLlama
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.batched_sampling import BatchedModel, Reply, Request, sample_batched
from specdec_lib.training.data.begun_shard import BegunShard
from specdec_lib.training.data.examples import normalised
from specdec_lib.training.data.prompt_sources import Asked, Sieve, opener, read_conversations, self_prompts, shipped
from specdec_lib.training.data.shards import Record, Shards
from specdec_lib.types import Refusal

MIX = (0.0, 0.7, 0.0, 1.0, 0.0, 0.7, 0.0, 1.0, 0.0, 0.7)    # temperatures of every ten answers from one source
OWN = "self"                                       # the source of prompts that the target made up
PROMPT = 192                                       # tokens the target may take to make one up
READ = 1024                                        # tokens a prompt may have, if nothing else is said
USELESS = 20                                       # prompts of no use before more minutes are advised no longer
STUMP = 16                                         # an answer cut by the clock before that is dropped
AT_ONCE, MANY = {"cpu": 32}, 1024                  # answers under way; many where a step costs little more with them
BATCHES = 8                                        # of a shard at least, if many: at its end rows run out of prompts


@dataclass(frozen=True)
class Made:
    """What a folder holds after a run, and what the run did."""

    records: int                                   # in the folder
    tokens: int
    shards: int                                    # made by this run
    tried: int                                     # prompts the target began to make up in this run
    seconds: float
    stopped: str                                   # tokens (there are enough), time, or prompts (there are no more)


@dataclass(frozen=True)
class AnswerPlan:
    """How answers are made."""

    size: int = 200                                # records of a shard
    max_new: int = 256
    own: float = 0.5                               # share of prompts the target makes up, where a file has others
    seed: int = 0
    mix: tuple[float, ...] = MIX                   # temperatures, in turn for the answers from one source
    read: int = READ                               # tokens a prompt may have

    def __post_init__(self):
        if self.size < 1 or self.max_new < 1:
            raise Refusal(f"a shard needs a record and an answer a token, got {self.size} and {self.max_new}")
        if not 0 <= self.own <= 1:
            raise Refusal(f"the share of prompts that the target makes up is a number from 0 to 1, got {self.own}")

    def key(self, *place: str | int) -> int:
        """A seed for the coins of one text."""
        return int.from_bytes(hashlib.blake2b(repr((self.seed, *place)).encode(), digest_size=7).digest())


class PromptLot:
    """One shard under way: asks for prompts, then for answers to them, and keeps these as records."""

    def __init__(self, text: Tokenizer, plan: AnswerPlan, number: int, sieve: Sieve, given: Iterator[Asked],
                 wanted: int, context: int | None = None):
        self.text, self.plan, self.number, self.sieve, self.given = text, plan, number, sieve, given
        self.wanted, self.context = wanted, context or plan.read + plan.max_new
        self.records: list[Record] = []
        self.waiting: deque[Request] = deque()
        self.started: Counter[str] = Counter()     # answers begun, per source
        self.making = self.tried = self.useless = self.tokens = 0

    def poll(self) -> Request | None:
        """What to run next; None when the shard is full or has its tokens, as far as is known by now."""
        if self.waiting:
            return self.waiting.popleft()
        begun = self.started.total() + self.making
        if begun >= self.plan.size or self.tokens >= self.wanted:
            return None
        if self.started[OWN] + self.making >= self.plan.own * (begun + 1):
            request = next(filter(None, map(self.begin, self.given)), None)
            if request is not None:
                return request
        return self.make_up()

    def make_up(self) -> Request | None:
        """A prompt of the target's own, unless too many have come to nothing."""
        if self.plan.own == 0 or self.tried >= 20 + 10 * self.plan.size:
            return None
        start = opener(self.text)
        if len(start) >= self.context:
            return None
        self.making, self.tried = self.making + 1, self.tried + 1
        limit = min(PROMPT, self.context - len(start))
        return Request(start, limit, 1.0, self.plan.key(self.number, "prompt", self.tried))

    def begin(self, asked: Asked) -> Request | None:
        """A request to answer the first turn, unless it is closed or too long."""
        return self.answer(asked, ()) if self.sieve.admit(asked.turns[0]) else None

    def answer(self, asked: Asked, earlier: tuple[str, ...]) -> Request | None:
        """A request to answer the turn that follows what was said, user's turns and answers, unless it is too long."""
        source, turn = asked.source, asked.turns[len(earlier) // 2]
        ids = self.text.encode_chat(with_system([*earlier, turn], asked.system))
        if len(ids) > self.plan.read or len(ids) + self.plan.max_new > self.context:
            return None
        place, self.started[source] = self.started[source], self.started[source] + 1
        return Request(ids, self.plan.max_new, self.plan.mix[place % len(self.plan.mix)],
                       self.plan.key(self.number, source, place), (asked, earlier))

    def take(self, reply: Reply) -> None:
        """A prompt that was made up is asked; an answer is kept, and the next turn asked."""
        if reply.request.note:
            if reply.whole or len(reply.output) >= STUMP:
                self.record(reply)
            request = self.next(reply)
        else:
            self.making -= 1
            prompt = self_prompts(self.text, reply.output) if reply.whole else None
            self.useless += reply.whole and prompt is None
            request = None if prompt is None else self.begin(Asked((prompt,), OWN))
        if request is not None:
            self.waiting.append(request)

    def record(self, reply: Reply) -> None:
        asked, earlier = reply.request.note
        self.tokens += len(reply.output)
        record: Record = {"source": asked.source, "temperature": reply.request.temperature,
                          "prompt": asked.turns[len(earlier) // 2], "output": list(reply.output)}
        if earlier:
            record["earlier"] = list(earlier)
        if asked.system is not None:
            record["system"] = asked.system
        self.records.append(record)

    def next(self, reply: Reply) -> Request | None:
        """A request to answer the next turn, if there is one and this answer is whole, does not loop and has words."""
        asked, earlier = reply.request.note
        turn = len(earlier) // 2
        looped = len(reply.output) < reply.request.limit and reply.output[-1] not in self.text.facts.end
        if turn + 1 == len(asked.turns) or not reply.whole or looped:
            return None
        said = self.text.decode(reply.output)
        return self.answer(asked, (*earlier, asked.turns[turn], said)) if said.strip() else None


def refuse_nothing(tokens: int, minutes: float, batch: int) -> None:
    """Refusal for nothing to do."""
    if tokens < 1 or not minutes > 0 or batch < 1:
        raise Refusal(f"nothing to do with {tokens} tokens, {minutes} minutes and a batch of {batch}: give at least 1"
                      " token, more than 0 minutes and a batch of at least 1")


def room_for_prompts(lm: Target, text: Tokenizer, plan: AnswerPlan) -> int:
    """Tokens that a prompt may have, the chat template's included; Refusal where the context has room for none."""
    if lm.context is None:
        return plan.read
    if len(text.encode_chat(["a"])) + plan.max_new > lm.context:
        raise Refusal(f"the target holds {lm.context} tokens, and an answer of {plan.max_new} leaves no room for a"
                      " prompt: give a smaller --max-new-tokens")
    return min(plan.read, lm.context - plan.max_new)


def no_answers(prompts: Sequence[Path], plan: AnswerPlan, room: int, useless: int) -> Refusal:
    """Why no prompt was answered: those of the files are too long, and those that the target made up of no use."""
    if not prompts:
        return Refusal(f"none of the prompts that the target made up can be used ({useless:,} whole ones): give some"
                       " with --prompts")
    own = ", and the target made up none that can be used" if plan.own else ""
    return Refusal(f"each prompt in {', '.join(map(str, prompts))} has more than {room} tokens, the chat template's"
                   f" included, and no more may come before an answer of {plan.max_new}{own}: give shorter ones")


def allowed_conversations(prompts: Sequence[Path], never: frozenset[str] | set[str], seed: int) -> list[Asked]:
    """The conversations of these files in shuffled order, without those that have a turn that is never asked.

    Refusal where there are files and none of their conversations is left.
    """
    given = [asked for path in prompts for asked in read_conversations(path)
             if not never.intersection(map(normalised, asked.turns))]
    if prompts and not given:
        raise Refusal(f"each prompt in {', '.join(map(str, prompts))} is forbidden or one that we measure with: give"
                      " others, or leave --prompts out, and the target makes some up")
    random.Random(seed).shuffle(given)
    return given


def batched_model(lm: Target) -> BatchedModel:
    """Many texts at once through this target's weights."""
    return BatchedLlama(lm.weights) if isinstance(lm, Transformer) else BatchedHuggingFace(lm.model)


def make_answers(lm: Target, text: Tokenizer, folder: str | Path, tokens: int, minutes: float,
                 prompts: Iterable[Path] = (), forbidden: Iterable[str] = (),
                 plan: AnswerPlan = AnswerPlan(), batch: int | None = None, top_p: float = 0.98,
                 target: str | None = None, say: Callable[[str], None] = lambda line: None,
                 progress: Callable[[int, float], None] = lambda tokens, seconds: None,
                 clock: Callable[[], float] = time.monotonic) -> Made:
    """Fills `folder` with shards until it holds `tokens` output tokens or `minutes` are over.

    `prompts` are JSON-lines files beside the target's own inventions; the shipped prompts and `forbidden` texts are
    never asked, nor is a conversation that has one of them. `progress(tokens in the folder, seconds)` hears of every
    answer. The same seed and batch (None: what suits the device) make the same shards, however often the run was
    killed between. `target` names what speaks: `name_of(lm, text)` if None.
    """
    batch, prompts = AT_ONCE.get(lm.device.type, MANY) if batch is None else batch, tuple(prompts)
    refuse_nothing(tokens, minutes, batch)
    begun, room = clock(), room_for_prompts(lm, text, plan)
    never = Sieve([*shipped(), *forbidden]).closed
    given = allowed_conversations(prompts, never, plan.seed)
    plan = sized(plan if given else replace(plan, own=1.0), batch)                 # none: then no prompts were given
    shards = Shards(folder, target or name_of(lm, text))
    closed = never | firsts(shards)
    rows = batched_model(lm)                       # its memory serves all shards
    count, tried, useless, stopped = 0, 0, 0, "tokens"
    late = lambda: clock() - begun >= 60 * minutes               # noqa: E731
    while shards.tokens < tokens and stopped == "tokens":
        place = shards.free                        # one that was damaged is made as long as it was
        settings = plan, max(PROMPT, plan.max_new), batch, top_p, tokens - shards.before(place), sorted(closed), given
        kept = BegunShard(shards, place, lambda: PromptLot(      # the lambda is called in this turn alone
            text, plan, place, Sieve(closed), iter(given), settings[4], lm.context), settings)   # noqa: B023
        lot = kept.lot
        for reply in sample_batched(rows, kept.poll, text.facts.end, settings[1], batch, top_p, late,
                                    kept.running, kept.steps, kept.keep):
            kept.take(reply)
            progress(shards.tokens + lot.tokens, clock() - begun)
        tried, useless = tried + lot.tried, 0 if lot.started else lot.useless
        if lot.records:
            shards.write(lot.number, lot.records)
            count, closed = count + 1, closed | firsts(lot.records)
            say(f"shard {lot.number}: {len(lot.records)} answers, {lot.tokens} tokens, {shards.tokens} in all")
        stopped = "time" if late() else stopped if lot.records else "prompts"
    if not shards.records and (useless >= USELESS or stopped == "prompts"):
        raise no_answers(prompts, plan, room, useless)
    stopped = "tokens" if shards.tokens >= tokens else stopped
    return Made(shards.records, shards.tokens, count, tried, clock() - begun, stopped)


def sized(plan: AnswerPlan, batch: int) -> AnswerPlan:
    """The plan with shards large enough for so many answers under way."""
    return replace(plan, size=max(plan.size, BATCHES * batch)) if batch > AT_ONCE["cpu"] else plan


def firsts(records: Iterable[Record]) -> set[str]:
    """The first turns of these, as texts are compared."""
    return {normalised(record.get("earlier", [record["prompt"]])[0]) for record in records}


def name_of(lm: Target, text: Tokenizer) -> str:
    """A short name that changes with shape, weights, vocabulary and chat settings, not with the precision of a run.

    But weights of single precision have another one in float16, from which the sample in bfloat16 is rounded twice.
    """
    facts = fingerprint(lm, text)
    return json_sha256(facts if text.chat == USUAL else [facts, asdict(text.chat)])[:16]
