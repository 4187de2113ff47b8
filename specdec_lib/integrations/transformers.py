"""The plug into transformers: `model.generate(..., custom_generate=Speculative("sam"))`.

The caller's own model verifies. With a lossless method, greedy ids equal plain `generate`'s in fp32 (elsewhere rows may
differ by rounding), and sampled ones have its distribution; `torch.manual_seed` repeats them. transformers 5 hands a
callable neither `streamer` nor `tokenizer`, and it drops a streamer without a word: give both to `Speculative`, or take
the other way that it offers, a folder with generate.py, which hands on everything:

    model.generate(**inputs, custom_generate=FOLDER, trust_remote_code=True, method="sam", streamer=streamer)

transformers also refuses `stop_strings` beside a callable: take FOLDER for them, or
`stopping_criteria=[StopStringCriteria(tokenizer, ["end"])]`.

Not supported, and refused by name: beams, batches, logits processors besides temperature, top_k and top_p, caches of
the caller's, attentions and hidden states as output, texts that outgrow the length from which a model's positions
change (dynamic and longrope). A tie at the border of top_k keeps one token here, and all that
tie in transformers.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.generation.configuration_utils import GenerationConfig
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.stopping_criteria import StoppingCriteriaList, StopStringCriteria
from transformers.generation.utils import GenerateDecoderOnlyOutput

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.heads.published import KINDS
from specdec_lib.integrations.generation_request import GenerationRequest, request_of
from specdec_lib.integrations.opened_model import OpenedModel, open_model
from specdec_lib.loop import begin, finish, run
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.scores import RandomNumbers, Scores
from specdec_lib.specs import MethodSpec
from specdec_lib.types import LM, Draft, How, Method, Refusal, Session, Verdict

PLAIN = "ar"
FOLDER = str(Path(__file__).parent)                # for custom_generate=FOLDER


class SpeculativeOutput(GenerateDecoderOnlyOutput):
    """transformers' own output; its `session`, which is none of its keys, holds every round that was decoded."""

    session: Session


@dataclass(frozen=True)
class Speculative:
    """A method as a `custom_generate` of transformers; keep one for many prompts, since it keeps what it loaded."""

    method: str = "sam"                            # as on the command line: "sam(depth=8)", "eagle@svip"
    checkpoints: str | Path | None = None          # a folder of trained drafters; None = the shipped ones
    draft: Any = None                              # a smaller transformers model with the same tokenizer
    tokenizer: Any = None                          # checkpoints are compared with it, and a draft model's vocabulary
    streamer: Any = None
    eagle: str | Path | None = None                # a published EAGLE head, a folder or a hub name, for the trained one
    dflash: str | Path | None = None               # a published DFlash drafter, likewise, for `block-diffusion`
    opened: list[OpenedModel] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self):
        if not isinstance(self.method, str):
            raise Refusal(f'a method is named by a text, such as "sam" or "eagle@svip", got {self.method!r:.80}')
        catalog.method_spec(self.method)           # refused now, before a model is at hand

    @property
    def spec(self) -> MethodSpec:
        """The parsed method; Refusal for one that does not exist."""
        return catalog.method_spec(self.method)

    def __call__(self, model, input_ids: Tensor, logits_processor: LogitsProcessorList,
                 stopping_criteria: StoppingCriteriaList, generation_config: GenerationConfig,
                 synced_gpus: bool = False, streamer: Any = None, **model_kwargs):
        """Decodes one sequence; called by `generate` with what it has prepared. Refusal for what is not supported."""
        if synced_gpus:
            raise Refusal("synced_gpus is not supported by a speculative custom_generate: run the model on one device")
        asked = request_of(model, input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs)
        if self.streamer is not None:
            self.streamer.put(input_ids.cpu())     # `generate` has done so for a streamer that it knows of
            streamer = self.streamer
        out = Written(input_ids, logits_processor, stopping_criteria, generation_config, streamer)
        seed = 0 if asked.sampling is None else int(torch.randint(2 ** 62, ()))
        return self.decode(self.open(model), asked, out, Dice(seed))

    def open(self, model) -> OpenedModel:
        """The model with its drafters, opened at its first call."""
        if not (self.opened and self.opened[0].model is model):
            shelf = None if self.checkpoints is None else Path(self.checkpoints)
            published = {kind: str(name) for kind in KINDS if (name := getattr(self, kind)) is not None}
            self.opened[:] = [open_model(model, self.spec, shelf, self.draft, self.tokenizer,
                                         lambda line: warnings.warn(line, stacklevel=2), published)]
        return self.opened[0]

    def decode(self, opened: OpenedModel, asked: GenerationRequest, out: Written, dice: RandomNumbers):
        """Runs the method's rounds until a criterion stops them."""
        kit = opened.kit(asked.sampling, asked.end)
        method, plain = (catalog.build(spec, kit) for spec in (self.method, PLAIN))
        if out.needs_rows:
            if method.schedule is not None:
                raise Refusal(f"output_logits and output_scores are not supported with {self.method}, which verifies"
                              " beside its drafter: take a method that drafts in turn")
            method, plain = (one._replace(how=KeptRows(one.how, out.rows)) for one in (method, plain))
        refuse_moving_positions(opened.target, len(asked.prompt) + asked.max_new_tokens)
        session = begin(asked.prompt, asked.max_new_tokens, asked.end, asked.sampling, "given")
        try:
            for session in rounds_within(session, kit.target, method, plain, dice):         # noqa: B020
                if out.push(session.rounds[-1].verdict.tokens):
                    break
        finally:
            session = up_to(session, out.ids.shape[1])
            finish(kit.memory, session)
        return out.finish(session, kit.target)


def rounds_within(session: Session, target: LM, method: Method, plain: Method,
                  dice: RandomNumbers) -> Iterator[Session]:
    """The method's rounds as far as the model's context reaches, then plain ones, as `generate` goes on beyond it.

    A table of positions may end there: a draft would read behind it where the answer does not.
    """
    reach = session.remaining if target.context is None else max(0, target.context - session.prompt)
    beyond = max(0, session.remaining - reach)
    near = replace(session, remaining=session.remaining - beyond)
    for near in run(near, target, method, dice) if near.remaining else ():           # noqa: B020
        yield replace(near, remaining=near.remaining + beyond)
    far = replace(near, remaining=near.remaining + beyond)
    if not far.done:
        yield from run(far, target, plain, dice)


def refuse_moving_positions(target: HuggingFace, longest: int) -> None:
    """Refuses a text that grows beyond the length from which the model's positions depend on it."""
    end = target.moves_after
    if end is not None and longest > end:
        raise Refusal(f"the positions of {type(target.model).__name__} change with the length beyond {end} tokens, so"
                      f" drafts could change the answer: ask for at most {end} tokens with the prompt, or generate"
                      " without custom_generate")


def up_to(session: Session, length: int) -> Session:
    """The session whose last round ends after so many tokens: a criterion may stop within it."""
    more = len(session.tokens) - length
    if more <= 0:
        return session
    *before, last = session.rounds
    stop, stats = len(last.verdict.tokens) - more, last.row_stats
    cut = replace(last, verdict=Verdict(last.verdict.path[:stop], last.verdict.tokens[:stop]),
                  row_stats=stats.about(stats.rows[:stop], stats.kept), logprobs=last.logprobs[:stop])
    return replace(session, tokens=session.tokens[:length], remaining=session.remaining + more, rounds=(*before, cut))


@dataclass(frozen=True)
class KeptRows:
    """A rule that also keeps the target's logits of the rows which its verdict emits from."""

    how: How
    rows: list[Tensor]

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Verdict:
        verdict = self.how(session, draft, scores, dice)
        rows = [0, *(node + 1 for node in verdict.path)][:len(verdict.tokens)]
        self.rows[:] = [scores.logits[rows].float()]
        return verdict


class Written:
    """The output of one call as it grows: ids, scores and logits, handed to the streamer token by token."""

    def __init__(self, input_ids: Tensor, processor: LogitsProcessorList, criteria: StoppingCriteriaList,
                 config: GenerationConfig, streamer: Any):
        self.ids, self.processor, self.criteria = input_ids, processor, criteria
        self.config, self.streamer = config, streamer
        kept = bool(config.return_dict_in_generate)
        self.scores: tuple[Tensor, ...] | None = () if kept and config.output_scores else None
        self.logits: tuple[Tensor, ...] | None = () if kept and config.output_logits else None
        self.rows: list[Tensor] = []               # of the last round, see `KeptRows`

    @property
    def needs_rows(self) -> bool:
        return self.scores is not None or self.logits is not None

    def push(self, tokens: tuple[int, ...]) -> bool:
        """Appends a round's tokens one by one; True, with the rest dropped, where a stopping criterion is met."""
        start = self.ids.shape[1]
        whole = torch.cat((self.ids, torch.tensor([tokens], dtype=self.ids.dtype, device=self.ids.device)), -1)
        for place in range(len(tokens)):
            self.keep_rows(place)
            self.ids = whole[:, :start + place + 1]
            stops = bool(self.criteria(self.ids, self.scores).all())     # pyright: ignore[reportArgumentType]
            if self.streamer is not None:
                self.streamer.put(self.ids[:, -1].cpu())
            if stops:
                return True
        return False

    def keep_rows(self, place: int) -> None:
        """Keeps raw and processed logits of the token at this place of the round, as `generate` keeps them."""
        if not self.needs_rows:
            return
        raw = self.rows[0][place:place + 1].to(self.ids.device)
        if self.scores is not None:
            self.scores += (self.processor(self.ids, raw.clone()),)      # pyright: ignore[reportArgumentType]
        if self.logits is not None:
            self.logits += (raw,)

    def finish(self, session: Session, target):
        """The ids [1, length], or transformers' output with the cache of all tokens but the last."""
        if self.streamer is not None:
            self.streamer.end()
        if not self.config.return_dict_in_generate:
            return self.ids
        past = None
        if self.config.use_cache:
            target.prefill(tuple(self.ids[0, :-1].tolist()))
            past = target.cache.past
        kept: dict[str, Any] = {"sequences": self.ids, "scores": self.scores, "logits": self.logits}
        out = SpeculativeOutput(**kept, past_key_values=past)
        out.session = session
        return out


def generate_from_folder(model, method: str = "sam", checkpoints: str | Path | None = None, tokenizer: Any = None,
                         streamer: Any = None, assistant_model: Any = None, stopping_criteria: Any = None,
                         stop_strings: Any = None, generation_config: Any = None, eagle: str | Path | None = None,
                         dflash: str | Path | None = None, **given):
    """What `custom_generate=FOLDER` runs: `generate` with `Speculative`, and with everything that a callable lacks.

    `assistant_model` becomes the draft model of methods that use one. Returns what `generate` returns.
    """
    plug = Speculative(method, checkpoints, assistant_model, tokenizer, streamer, eagle, dflash)
    config = generation_config or model.generation_config
    strings = stop_strings or config.stop_strings
    criteria = StoppingCriteriaList(stopping_criteria or ())
    if strings is not None:
        if tokenizer is None:
            raise Refusal("stop_strings are compared with text: give the model's tokenizer to generate as well")
        criteria.append(StopStringCriteria(tokenizer, strings))
        generation_config = copy.copy(config)
        generation_config.stop_strings = None      # of which `generate` would ask for the tokenizer again
    return model.generate(generation_config=generation_config, stopping_criteria=criteria, custom_generate=plug,
                          **given)
