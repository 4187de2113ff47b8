"""The head says what a plain forward over all its rows says, whatever was drafted, rejected or left out before."""

import random

import pytest
import torch
import torch.nn.functional as F

from specdec_lib.heads.eagle import PACKED, EagleHead, EagleWeights, eagle_head
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import ROOT, Draft, Refusal
from tests.heads.eagle_head import CHECKPOINT, IDS, SHAPE, TAPS, TARGET, far, made
from tests.worlds import random_eagle

CHAIN = Draft((7, 8, 9, 10), (ROOT, 0, 1, 2))
TREE = Draft((7, 8, 9, 10, 11, 12), (ROOT, ROOT, 0, 0, 1, 3))


def unit(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE.eps)


def turned(x, positions):
    cos, sin = rope_table(SHAPE, int(positions.max()) + 1, x.dtype, x.device)
    return x * cos[positions][:, None] + x.roll(SHAPE.head_dim // 2, -1) * sin[positions][:, None]


def one_row_after_the_other(tokens, draft, streams):
    """Logits [1 + nodes, rows] from all rows, one row at a time over an explicit list of what it sees."""
    w = {name: tensor if name == "ids" else tensor.double() for name, tensor in CHECKPOINT.state.items()}
    base, embedding, h, kv_heads, d = len(tokens) - 1, TARGET.weights.embedding, SHAPE.hidden, SHAPE.kv_heads, 6
    keys, values, outputs = [], [], []
    for row in range(base + len(draft)):
        if row < base:
            g = w["fc"] @ unit(streams[row]).reshape(-1)
            token, position, seen = tokens[row + 1], row, list(range(row + 1))
        else:
            node = row - base
            g = outputs[base + draft.parents[node]]                    # ROOT is -1: the last committed row
            token, position = draft.tokens[node], base - 1 + draft.depths[node]
            seen = list(range(base)) + [base + other for other in draft.path(node)]
        made = (w["qkv"] @ torch.cat((unit(embedding[token]), unit(g)))).view(1, -1, d)
        at = torch.tensor([position])
        q, k = turned(made[:, :SHAPE.heads], at)[0], turned(made[:, SHAPE.heads:-kv_heads], at)[0]
        keys.append(k)
        values.append(made[0, -kv_heads:])
        k, v = (torch.stack([what[i] for i in seen], 1).repeat_interleave(SHAPE.group, 0) for what in (keys, values))
        weight = torch.softmax((k @ q[:, :, None])[..., 0], -1)
        x = g + w["out"] @ (weight[:, None] @ v).reshape(-1)
        gate, up = (w["gate_up"] @ unit(x)).chunk(2)
        outputs.append(x + w["down"] @ (F.silu(gate) * up))
    rows = torch.stack(outputs[base - 1:])
    assert rows.shape == (1 + len(draft), h)
    return (unit(rows) * w["norm"]) @ TARGET.weights.head.dense()[list(IDS)].T


def expected(tokens, draft):
    target = TARGET.fresh()
    target.tap(TAPS)
    target.prefill(tokens)
    return one_row_after_the_other(tokens, draft, target.features(tokens))


def words(n, seed=0):
    dice = random.Random(seed)
    return tuple(dice.randrange(97) for _ in range(n))


@pytest.mark.parametrize("draft", [Draft(), CHAIN, TREE], ids=["none", "chain", "tree"])
@pytest.mark.parametrize("length", [2, 3, 20])
def test_logits_are_those_of_a_plain_forward_over_all_rows(draft, length):
    _, head = made()
    scores = head(words(length), draft)
    assert scores.logits.dtype == torch.float64
    assert scores.logits.shape == (1 + len(draft), len(IDS))
    assert far(scores.logits, expected(words(length), draft)) < 1e-11


@pytest.mark.parametrize("draft", [CHAIN, TREE], ids=["chain", "tree"])
def test_a_draft_that_grows_costs_its_new_nodes_alone(draft):
    _, head = made()
    text = words(20)
    for nodes in range(len(draft) + 1):
        before = head.fed
        scores = head(text, draft.keep(tuple(range(nodes))))
        assert head.fed - before == (1 if nodes else 19)
    assert far(scores.logits, expected(text, draft)) < 1e-11


def test_a_tree_costs_one_forward_a_level():
    _, head = made()
    head(words(20), Draft())
    assert head.forwards == 1
    head(words(20), TREE)
    assert TREE.depth == 3
    assert head.forwards == 4


def test_a_draft_that_branches_off_the_last_one_is_scored_as_if_it_came_first():
    _, head = made()
    head(words(20), TREE)
    other = Draft((7, 8, 50, 51), (ROOT, ROOT, 1, 0))
    assert far(head(words(20), other).logits, expected(words(20), other)) < 1e-11
    assert far(head(words(20), TREE).logits, expected(words(20), TREE)) < 1e-11


def test_earlier_rounds_do_not_change_a_draft(rounds):
    target, head = made()
    dice = random.Random(1)
    for tokens, draft in rounds(seed=3, rounds=40):
        if dice.random() < .6:                     # in the other rounds somebody else drafted
            assert far(head(tokens, draft).logits, expected(tokens, draft)) < 1e-11
        target(tokens, draft)


def test_after_a_rejection_only_rows_of_true_features_are_kept():
    target, head = made()
    text = words(20)
    target.prefill(text[:-1])
    head(text, TREE)
    target(text, TREE)
    before = head.fed
    longer = text + (8, 11, 33)                    # two nodes were accepted, 33 is the target's own
    scores = head(longer, Draft())
    assert head.fed - before == 3
    assert target.fed == 19 + 1 + len(TREE)
    assert far(scores.logits, expected(longer, Draft())) < 1e-11


def test_after_two_rounds_without_a_call_it_catches_up_in_one_forward():
    target, head = made()
    text = words(20)
    target.prefill(text[:-1])
    head(text, CHAIN)
    for _ in range(2):
        target(text, CHAIN)
        text += (7, 8, 50)
    forwards = head.forwards, target.forwards
    assert far(head(text, Draft()).logits, expected(text, Draft())) < 1e-11
    assert (head.forwards, target.forwards) == (forwards[0] + 1, forwards[1])


def test_a_context_that_differs_in_its_first_token_is_read_again():
    _, head = made()
    text, other = words(12), (96, *words(12)[1:])
    head(text, Draft())
    assert far(head(other, Draft()).logits, expected(other, Draft())) < 1e-11


def test_nothing_changes_where_the_cache_grows_and_a_long_prompt_is_read_in_pieces():
    target, head = made()
    text = words(1020)
    for _ in range(3):
        scores = head(text, CHAIN)
        target(text, CHAIN)
        text += (7, 8, 9)
    _, new = made()
    assert head.cache.capacity > 1024
    assert far(scores.logits, new(text[:-3], CHAIN).logits) < 1e-11
    assert far(new(words(600), TREE).logits, expected(words(600), TREE)) < 1e-10


def test_features_at_and_after_the_last_token_are_never_read():
    class Leaking(Transformer):
        """A target that has already been fed the last token and some more."""

        def features(self, tokens):
            held = super().features(tokens)[:len(tokens) - 1]
            return torch.cat((held, torch.full((3, *held.shape[1:]), 1e3, dtype=held.dtype)))

    target = Leaking(TARGET.weights)
    head = EagleHead(CHECKPOINT.state, TAPS, target)
    assert far(head(words(20), TREE).logits, expected(words(20), TREE)) < 1e-11


def test_the_feature_before_the_last_token_is_read():
    class Disturbed(Transformer):
        def features(self, tokens):
            held = super().features(tokens).clone()
            held[len(tokens) - 2] += 1.0
            return held

    head = EagleHead(CHECKPOINT.state, TAPS, Disturbed(TARGET.weights))
    assert far(head(words(20), Draft()).logits, expected(words(20), Draft())) > 1e-3


def test_tokens_of_the_restricted_vocabulary_come_out_as_ids():
    _, head = made()
    scores = head(words(20), CHAIN)
    assert scores.best == tuple(IDS[column] for column in scores.logits.argmax(-1))
    assert torch.equal(head.ids, torch.tensor(IDS))


def test_one_token_of_context_is_an_error():
    _, head = made()
    with pytest.raises(ValueError, match="two tokens"):
        head((1,), Draft())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_weights_of_other_precisions_score_nearly_the_same(dtype):
    target = Transformer.random(SHAPE, seed=2, dtype=dtype)
    head = EagleHead(CHECKPOINT.state, TAPS, target)
    scores, want = head(words(30), TREE), expected(words(30), TREE)
    assert scores.logits.dtype == torch.float32
    assert far(scores.logits, want) < (1e-4 if dtype == torch.float32 else .1) * float(want.abs().max())


def test_a_head_of_the_same_checkpoint_and_weights_is_packed_once():
    checkpoint = random_eagle(SHAPE, TAPS, IDS)
    one, other = eagle_head(checkpoint, TARGET.fresh()), eagle_head(checkpoint, TARGET.fresh())
    assert one.weights is other.weights
    assert one.cache is not other.cache
    again = random_eagle(SHAPE, TAPS, IDS)
    assert eagle_head(again, TARGET.fresh()).weights is not one.weights
    del checkpoint
    eagle_head(again, TARGET.fresh())
    assert len([key for key in PACKED.made if key[1] == id(TARGET.weights)]) == 1


@pytest.mark.parametrize(("change", "word"), [
    ({"fc": torch.zeros(24, 48)}, "another model"), ({"norm": None}, "lacks the tensor norm"),
    ({"ids": torch.tensor([1, 200])}, "vocabulary of 97"), ({"qkv": torch.zeros(48, 24)}, "another model")])
def test_a_checkpoint_that_does_not_fit_the_target_is_refused_in_a_sentence(change, word):
    state = {name: tensor for name, tensor in (CHECKPOINT.state | change).items() if tensor is not None}
    with pytest.raises(Refusal, match=word):
        EagleWeights.pack(state, len(TAPS), TARGET.weights)
