"""ReSpec with a memory: `respec`, whose retrieval also searches the answers to earlier prompts.

Source: ours, on ReSpec (arXiv 2511.01282); which store its retrieval has is not known to us. Lossless. On its first
prompt it equals `respec`; its later gain depends on the earlier prompts, so a bench runs it cold and as a stream. The
memory excludes prompts by default: every prompt ends in the same words of a chat template, followed by the beginning of
an answer to another question. Cost: as `respec`, plus the index of earlier answers.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.memory.answers import MOST, earlier_answers
from specdec_lib.methods import respec
from specdec_lib.types import Method


def make(kit: Kit, remember: int = MOST, prompts: bool = False, theta: float = 5.0, penalty: float = 1.0,
         look_back: int = 3, reading: str = "switch", least: float = 0.6, shape: str = "likely",
         nodes: int | None = None) -> Method:
    """`remember` bounds the tokens of earlier answers, `prompts` stores prompts as well; the rest is `respec`'s."""
    earlier_answers(kit, remember, prompts)
    return respec.make(kit, theta, penalty, look_back, reading, least=least, shape=shape, nodes=nodes,
                       remember=remember)


CARD = Card("respec+memory", idea="ReSpec that also copies from earlier answers",
            source="ours, on ReSpec, arXiv 2511.01282", make=make, notebook="25_what_feedback_retrieval", off_path=True,
            learns_across_prompts=True,
            parts=("entropy-trigger", "feedback-retrieval", "eagle2", "switch", "match"))
