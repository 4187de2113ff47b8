"""ReSpec with a memory: `respec`, whose retrieval also searches the answers to earlier prompts.

Source: ReSpec (arXiv 2511.01282), whose retrieval store is said to hold generated text; that it persists across prompts
is our reading. Lossless. On its first prompt it equals `respec`; its later gain depends on the earlier prompts, so a
bench runs it cold and as a stream. The memory excludes prompts by default: every prompt ends in the same words of a
chat template, followed by the beginning of an answer to another question. Cost: as `respec`, plus the index of earlier
answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.memory.answers import MOST, AnswerStore, earlier_answers
from specdec_lib.methods import respec
from specdec_lib.scores import Scores
from specdec_lib.types import Card, Draft, How, Kit, Method, Session, Verdict


@dataclass(frozen=True)
class RecordingRule:
    """The verdict of `rule`, unchanged; the session's output with it is stored for later prompts.

    The rule is called in every round, including the last, so every emitted token is stored.
    """

    rule: How
    answers: AnswerStore
    prompts: bool = False                          # store prompts, too

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice) -> Verdict:
        verdict = self.rule(session, draft, scores, dice)
        text = session.tokens if self.prompts else session.output
        self.answers.hear(text + verdict.until(session).tokens)
        return verdict


def make(kit: Kit, remember: int = MOST, prompts: bool = False, theta: float = 5.0, penalty: float = 1.0,
         look_back: int = 3, reading: str = "switch", least: float = 0.3, shape: str = "likely",
         nodes: int | None = None) -> Method:
    """`remember` bounds the tokens of earlier answers, `prompts` stores prompts as well; the rest is `respec`'s."""
    own = respec.make(kit, theta, penalty, look_back, reading, least=least, shape=shape, nodes=nodes, remember=remember)
    return own._replace(how=RecordingRule(own.how, earlier_answers(kit, remember), prompts))


CARD = Card("respec+memory", idea="ReSpec that also copies from earlier answers",
            source="ReSpec, arXiv 2511.01282", make=make, notebook="25_what_feedback_retrieval", off_path=True,
            learns_across_prompts=True,
            parts=("entropy-trigger", "feedback-retrieval", "eagle2", "switch", "match"))
