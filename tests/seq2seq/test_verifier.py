"""The encoder-decoder as a language model: trees and caches give what a fresh forward over one path gives."""

import pytest
import torch

from specdec_lib.scores import Scores
from specdec_lib.seq2seq.alphabet import BEGIN, source_ids
from specdec_lib.seq2seq.verifier import Verifier
from specdec_lib.types import Draft, Refusal
from tests.seq2seq.worlds import SOURCE, network

NET = network()
TOKENS = (BEGIN, 10, 21, 9, 30)
TREE = Draft((11, 20, 12, 21, 22, 7), (-1, -1, 0, 1, 0, 4))


def recomputed(path: tuple[int, ...], source=SOURCE) -> torch.Tensor:
    """The last row of a forward over this path alone, without a cache."""
    return NET.teacher_forced(torch.tensor([source]), torch.tensor([path]))[0, -1]


def check(scores: Scores, tokens: tuple[int, ...], draft: Draft, source=SOURCE) -> None:
    for row in range(len(draft) + 1):
        path = tokens + tuple(draft.tokens[node] for node in draft.path(row - 1))
        assert torch.allclose(scores.logits[row], recomputed(path, source), atol=1e-10)


def test_a_tree_in_one_forward_equals_each_of_its_paths_alone():
    check(Verifier(NET, SOURCE)(TOKENS, TREE), TOKENS, TREE)


@pytest.mark.parametrize("first", [Draft((11, 12, 13), (-1, 0, 1)), TREE, Draft()], ids=["chain", "tree", "none"])
@pytest.mark.parametrize("then", [TOKENS + (11, 12, 40), TOKENS + (20, 5), TOKENS + (11, 20, 5), TOKENS, TOKENS[:2],
                                  (BEGIN, 10, 5, 5)])
def test_after_any_draft_and_any_next_text_the_cache_gives_what_recomputing_gives(first, then):
    target = Verifier(NET, SOURCE)
    target.prefill(TOKENS[:-1])
    target(TOKENS, first)
    check(target(then, TREE), then, TREE)


def test_accepted_tokens_of_a_chain_are_not_computed_again():
    target = Verifier(NET, SOURCE)
    target(TOKENS, Draft((11, 12, 13), (-1, 0, 1)))
    assert target.cache.common(TOKENS + (11, 12, 40)) == len(TOKENS) + 2


def test_another_source_says_another_thing_and_a_fresh_model_keeps_its_own():
    other = source_ids("tomato")
    target = Verifier(NET, SOURCE)
    target(TOKENS, Draft())
    check(target.bound(other)(TOKENS, TREE), TOKENS, TREE, other)
    check(target.fresh()(TOKENS, TREE), TOKENS, TREE)
    assert not torch.allclose(recomputed(TOKENS), recomputed(TOKENS, other), atol=1e-3)


def test_a_target_without_a_source_and_one_too_long_are_refused():
    with pytest.raises(Refusal, match="bind one"):
        Verifier(NET)(TOKENS, Draft())
    assert len(Verifier(NET).bound(source_ids("a" * 95)).source) == 96
    with pytest.raises(Refusal, match="at most 95"):
        Verifier(NET).bound(source_ids("a" * 96))
    with pytest.raises(Refusal, match="holds 96 tokens"):
        Verifier(NET, SOURCE)((BEGIN, *[5] * 95), Draft((6,), (-1,)))
