"""A head's shared forward says of each sequence what its own head says alone, whatever its length, draft and past."""

import random

import pytest
import torch

from specdec_lib.heads.eagle import eagle_head
from specdec_lib.heads.eagle_joint import ChainRequest, score_chains_together, score_heads_together
from specdec_lib.heads.public_eagle import load_public_eagle
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.packed_linear import PackedLinear
from specdec_lib.types import Draft
from tests.heads.eagle_head import CHECKPOINT, TARGET, far
from tests.heads.published import ALL, VOCAB, written
from tests.worlds import random_eagle

WIDE = LlamaConfig(layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, mlp=96, vocab=97, context=2048)


def heads(count: int, target=TARGET, checkpoint=CHECKPOINT):
    """So many heads on the same weights, each with a target of its own."""
    return [eagle_head(checkpoint, target.fresh()) for _ in range(count)]


def rows_of(rounds, turns: int, chain: bool, count: int = 4):
    """Rounds of `count` sequences, side by side."""
    return zip(*(rounds(31 * place + 5, turns, start=3 + 9 * place, chain=chain) for place in range(count)),
               strict=True)


@pytest.mark.parametrize("chain", [True, False], ids=["chains", "trees"])
def test_ragged_contexts_drafts_and_rounds_left_out_score_as_alone(rounds, chain):
    shared, alone, dice, seen = heads(4), heads(4), random.Random(2), set()
    for turn, asked in enumerate(rows_of(rounds, 8, chain)):
        here = [place for place in range(4) if dice.random() < .7]         # the others do not draft in this round
        found = score_heads_together([(shared[place], *asked[place]) for place in here])
        for place, scores in zip(here, found, strict=True):
            tokens, draft = asked[place]
            assert len(scores) == 1 + len(draft)
            assert far(scores.logits, alone[place](tokens, draft).logits) < 1e-11, (turn, place)
        seen.add(len(here))
        for head, one in zip(shared + alone, asked + asked, strict=True):
            head.target(*one)
    assert len(seen) > 2


def test_a_draft_that_grows_token_by_token_feeds_one_row_of_each_and_multiplies_weights_once(words, monkeypatch):
    shared = heads(3)
    texts = [words(6 + 5 * place, place) for place in range(3)]
    score_heads_together([(head, text, Draft()) for head, text in zip(shared, texts, strict=True)])
    assert [(head.forwards, head.fed) for head in shared] == [(1, 5), (1, 10), (1, 15)]
    fed, call = [], PackedLinear.__call__
    monkeypatch.setattr(PackedLinear, "__call__", lambda layer, x: fed.append(len(x)) or call(layer, x))
    score_heads_together([(head, text, Draft((3,), (-1,))) for head, text in zip(shared, texts, strict=True)])
    assert fed[:4] == [3] * 4                      # of the layer, whose fourth adds to rows, and the trained outputs
    assert fed[4:] == [1] * 3                      # the rows of each text's own tokens
    assert [(head.forwards, head.fed) for head in shared] == [(2, 6), (2, 11), (2, 16)]
    again = score_heads_together([(head, text, Draft((3,), (-1,))) for head, text in zip(shared, texts, strict=True)])
    assert len(fed) == 7                           # what a head has just said costs no forward
    assert [len(scores) for scores in again] == [2, 2, 2]


def test_a_newcomer_reads_a_long_prompt_beside_the_rows_of_others(words):
    short, long = heads(2)
    texts = words(9, 1), words(1200, 2)
    score_heads_together([(short, texts[0], Draft())])
    fed = short.fed
    draft = Draft((4,), (-1,))
    found = score_heads_together([(short, texts[0], draft), (long, texts[1], Draft())])
    for scores, text, nodes, other in zip(found, texts, (draft, Draft()), heads(2), strict=True):
        assert far(scores.logits, other(text, nodes).logits) < 1e-11
    assert (short.fed - fed, long.fed, long.forwards) == (1, 1199, 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def test_no_row_has_other_bits_where_the_target_promises_that(rounds, dtype):
    target = Transformer.random(WIDE, seed=6, dtype=dtype)
    checkpoint = random_eagle(WIDE, (0, 1, 2), tuple(range(1, 97, 2)))
    shared, alone, rows, other = heads(4, target, checkpoint), heads(4, target, checkpoint), 0, 0
    for asked in rows_of(rounds, 6, True):
        found = score_heads_together([(head, *one) for head, one in zip(shared, asked, strict=True)])
        for head, one, scores in zip(alone, asked, found, strict=True):
            same = (scores.logits == head(*one).logits).all(-1)
            rows, other = rows + len(same), other + int((~same).sum())
        for head, one in zip(shared + alone, asked + asked, strict=True):
            head.target(*one)
    assert rows > 60
    assert other == 0 or not target.batch_invariant, f"{other} of {rows} rows differ"


@pytest.mark.parametrize("name", ["eagle3", "speculators eagle3, every norm", "eagle1"])
def test_published_heads_share_a_forward_as_well(tmp_path, words, name):
    target = Transformer.random(LlamaConfig(layers=7, hidden=24, heads=4, kv_heads=2, head_dim=6, mlp=40, vocab=VOCAB,
                                            context=64), seed=3, dtype=torch.float64)
    published = load_public_eagle(written(tmp_path / "head", ALL[name]), target)
    asked = [(words(n, n), Draft((5, 8)[:k], (-1, 0)[:k])) for n, k in ((12, 2), (4, 0), (7, 1))]
    found = score_heads_together(list(zip(heads(3, target, published), *zip(*asked, strict=True), strict=True)))
    for scores, one, head in zip(found, asked, heads(3, target, published), strict=True):
        assert far(scores.logits, head(*one).logits) < 1e-9


def test_greedy_chains_of_several_lengths_are_those_that_each_head_draws_alone(words):
    counts, texts = (2, 4, 1, 4), [words(5 + 3 * place, place) for place in range(4)]
    shared, alone = heads(4), heads(4)
    asked = [ChainRequest(head, text, count) for head, text, count in zip(shared, texts, counts, strict=True)]
    for _ in range(2):                             # rows of nodes were not kept
        found = score_chains_together(asked)
        for scores, head, text, count in zip(found, alone, texts, counts, strict=True):
            plain = head.chain(text, count)
            assert scores.logits.shape == plain.logits.shape
            assert far(scores.logits, plain.logits) < 1e-4
            assert scores.best == plain.best
            assert [scores.stats(row, 3) for row in range(count)] == [
                pytest.approx(plain.stats(row, 3), abs=1e-4) for row in range(count)]
    assert [(head.forwards, head.fed) for head in shared] == [(head.forwards, head.fed) for head in alone]


def test_strangers_and_a_context_without_a_feature_are_refused(words):
    one, two = heads(2)
    [other] = heads(1, checkpoint=random_eagle(TARGET.shape, (0, 2, 3), (1, 2, 3), seed=9))
    asked = words(5), Draft()
    for stranger, why in ((one, "once"), (other, "same weights")):
        with pytest.raises(ValueError, match=why):
            score_heads_together([(one, *asked), (stranger, *asked)])
        with pytest.raises(ValueError, match=why):
            score_chains_together([ChainRequest(one, words(5), 2), ChainRequest(stranger, words(5), 2)])
    with pytest.raises(ValueError, match="needs two tokens"):
        score_heads_together([(one, *asked), (two, (3,), Draft())])
    with pytest.raises(ValueError, match="needs two tokens"):
        score_chains_together([ChainRequest(one, words(5), 2), ChainRequest(two, (3,), 2)])
