"""Rows of an EAGLE head in compiled code are those of its separate operations, bit for bit."""

import random

import pytest
import torch

from specdec_lib.heads import eagle_rows
from specdec_lib.heads.eagle import EagleHead
from specdec_lib.heads.eagle_network import EagleWeights
from specdec_lib.heads.eagle_rows import compiled_rows
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.path_attention import has_vectors, path_attention
from specdec_lib.types import ROOT, Draft
from tests.models.llama.test_compiled_layers import KINDS, weights_in
from tests.worlds import random_eagle

SHAPE = LlamaConfig(layers=3, hidden=96, heads=3, kv_heads=1, head_dim=32, mlp=112, vocab=97, context=2048, tied=True)
TAPS, IDS = (0, 2, 3), tuple(range(0, 97, 3))
CHECKPOINT = random_eagle(SHAPE, TAPS, IDS)
CHAIN = Draft((7, 8, 9, 10), (ROOT, 0, 1, 2))
TREE = Draft((7, 8, 9, 10, 11, 12), (ROOT, ROOT, 0, 0, 1, 3))
pytestmark = pytest.mark.skipif(not has_vectors(), reason="the C code has no vectors for this processor")


def words(n: int, seed: int = 0) -> tuple[int, ...]:
    dice = random.Random(seed)
    return tuple(dice.randrange(97) for _ in range(n))


def target_of(kind: str) -> Transformer:
    return Transformer(weights_in(kind, SHAPE))


def head_of(target: Transformer, compiled: bool, text_tokens: bool = True) -> EagleHead:
    head = EagleHead(CHECKPOINT.state, TAPS, target, text_tokens=text_tokens)
    assert head.compiled is not None
    if not compiled:
        head.compiled = None
    return head


def same(mine, other) -> bool:
    """Whether logits and statistics are equal bit for bit."""
    one, two = mine.row_stats(tuple(range(len(mine)))), other.row_stats(tuple(range(len(other))))
    return (torch.equal(mine.given, other.given.to(mine.given.dtype)) and torch.equal(one.ids, two.ids)
            and torch.equal(one.logits, two.logits) and (one.lse, one.entropy) == (two.lse, two.entropy))


def kept(head: EagleHead) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of all rows, and the outputs from the last committed row on: compiled code makes no others."""
    rows = len(head.cache.rows)
    return head.cache.kv[:, :, :, :rows], head.hidden[len(head.cache.rows.tokens) - 1:rows]


@pytest.mark.parametrize("text_tokens", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_rounds_of_chains_and_trees_are_the_same(kind, text_tokens, rounds):
    target = target_of(kind)
    heads = [head_of(target, compiled, text_tokens) for compiled in (True, False)]
    for asked, (tokens, draft) in enumerate(rounds(seed=3, rounds=30)):
        if asked % 3 != 2:                         # in every third round somebody else drafts
            mine, other = (head(tokens, draft) for head in heads)
            assert same(mine, other)
            assert [(head.forwards, head.fed) for head in heads][1:] == [(heads[0].forwards, heads[0].fed)]
        target(tokens, draft)
    assert (len(mine.ids) > len(IDS)) == text_tokens   # tokens of the text joined
    assert all(map(torch.equal, *map(kept, heads)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_becomes_shorter_is_drafted_behind_as_if_it_had_never_been_longer(kind):
    target, text = target_of(kind), words(30)
    mine, other = (head_of(target, compiled) for compiled in (True, False))
    for stop, more in ((30, 0), (25, 1), (25, 0), (27, 2), (26, 1), (2, 1)):
        fed = mine.fed
        assert same(mine(text[:stop], TREE), other(text[:stop], TREE))
        assert mine.fed - fed == (29 if stop == 30 else more) + (len(TREE) if more or stop == 30 else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_that_grows_node_by_node_is_the_same(kind):
    target = target_of(kind)
    heads = [head_of(target, compiled) for compiled in (True, False)]
    for draft in (CHAIN, TREE):
        for nodes in range(len(draft) + 1):
            assert same(*(head(words(20), draft.keep(tuple(range(nodes)))) for head in heads))


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_prompt_in_pieces_and_a_cache_that_grows_change_nothing(kind):
    target = target_of(kind)
    heads = [head_of(target, compiled) for compiled in (True, False)]
    text = words(1020)
    for _ in range(3):
        assert same(*(head(text, TREE) for head in heads))
        assert same(*(head.chain(text, 6) for head in heads))
        text += (7, 9, 12)
    assert heads[0].cache.capacity > 1024


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_in_one_call_is_the_best_token_after_the_other(kind):
    target = target_of(kind)
    one, other = (head_of(target, compiled) for compiled in (True, False))
    for length in (2, 3, 40):
        mine, draft = one.chain(words(length), 5), Draft()
        for _ in range(4):
            draft = Draft((*draft.tokens, other(words(length), draft).best[-1]), (*draft.parents, len(draft) - 1))
        assert same(mine, other(words(length), draft))
        assert same(one(words(length), TREE), other(words(length), TREE))      # its rows are not taken for the tree's
        assert one.cache.rows.depth == other.cache.rows.depth


def test_other_threads_change_nothing():
    target, threads = target_of("bf16"), torch.get_num_threads()
    head, told = head_of(target, True), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            told.append(head_of(target, True)(words(90), TREE))
            head(words(90, count), CHAIN)          # one head through all counts
            assert head.compiled.head.rows.threads == count
    finally:
        torch.set_num_threads(threads)
    assert all(same(told[0], one) for one in told[1:])


def test_nothing_is_compiled_where_a_part_is_not(monkeypatch):
    target = Transformer.random(SHAPE, dtype=torch.float64)
    assert EagleHead(CHECKPOINT.state, TAPS, target).compiled is None
    weights = EagleWeights.pack(CHECKPOINT.state, len(TAPS), target_of("bf16").weights)
    paths = path_attention(SHAPE.heads, SHAPE.kv_heads, SHAPE.head_dim)
    assert compiled_rows(weights, len(TAPS), paths) is not None
    assert compiled_rows(weights, len(TAPS), None) is None
    assert compiled_rows(object(), len(TAPS), paths) is None
    monkeypatch.setattr(eagle_rows, "compiled_functions", lambda: None)
    assert compiled_rows(weights, len(TAPS), paths) is None


def test_the_code_is_loaded_once_for_all_decodes(monkeypatch):
    target = target_of("bf16")
    first = head_of(target, True).compiled
    monkeypatch.setattr(eagle_rows, "library", lambda *_: pytest.fail("loaded again"))
    assert head_of(target.fresh(), True).compiled.code is first.code


class Failing:
    """Code of which one function finds no memory."""

    def __init__(self, code, function: str):
        self.code, self.function = code, function

    def __getattr__(self, name):
        return (lambda *_: 1) if name == self.function else getattr(self.code, name)


@pytest.mark.parametrize("function", ["run_rows", "score_rows", "run_chain"])
def test_missing_memory_is_an_error(function):
    head = head_of(target_of("bf16"), True)
    head.compiled.code = Failing(head.compiled.code, function)
    with pytest.raises(MemoryError, match="no memory"):
        head.chain(words(20), 2) if function == "run_chain" else head(words(20), TREE)
