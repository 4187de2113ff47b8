"""What a decoder gives on the way: exits after some layers, hidden states, a restricted head."""

import random

import pytest
import torch

from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import ROOT, Draft
from tests.models.llama.distance import CLOSE, far


def test_an_exit_scores_as_the_first_layers_do(checkpoint, rounds):
    lm = Transformer.load(checkpoint("llama").folder, torch.float64)
    early, alone = lm.exit(2), lm.first_layers(2)
    for tokens, draft in rounds(seed=4, rounds=10):
        assert far(early(tokens, draft).logits, alone(tokens, draft).logits) < 1e-11


def test_the_full_model_resumes_where_an_exit_stopped_and_embeds_nothing_again(checkpoint, words):
    lm = Transformer.load(checkpoint("llama").folder, torch.float64)
    text, draft = words(20), Draft((1, 2, 3), (ROOT, ROOT, 1))
    lm.prefill(text[:-1])
    lm.exit(1)(text, draft)
    assert far(lm(text, draft).logits, lm.fresh()(text, draft).logits) < 1e-11
    assert lm.fed == 19


def test_full_model_and_exits_alternate_on_one_cache(checkpoint, rounds):
    lm = Transformer.load(checkpoint("qwen3").folder, torch.float64)
    weights, ones = lm.weights, {1: lm.exit(1), 2: lm.exit(2), 3: lm}
    dice = random.Random(0)
    for tokens, draft in rounds(seed=5, rounds=60):
        for _ in range(dice.randrange(1, 4)):
            layers, nodes = dice.randrange(1, 4), dice.randrange(len(draft) + 1)
            part = draft.keep(tuple(range(nodes)))
            want = Transformer(weights, depth=layers)(tokens, part).logits
            assert far(ones[layers](tokens, part).logits, want) < 1e-11


def test_features_are_transformers_hidden_states_also_between_rounds(checkpoint, rounds):
    tiny = checkpoint("mistral")
    lm = Transformer.load(tiny.folder)
    lm.tap((0, 2, 3))
    for tokens, draft in rounds(seed=6, rounds=15):
        try:
            held = lm.features(tokens)
        except ValueError:                         # nothing was fed yet
            held = lm.features(tokens[:0])
        assert far(held, tiny.states(tokens)[:len(held), [0, 2, 3]]) < CLOSE if len(held) else not lm.fed
        lm(tokens, draft)
        assert far(lm.features(tokens), tiny.states(tokens)[:, [0, 2, 3]]) < CLOSE


def test_features_of_an_accepted_path_need_no_forward(checkpoint, words):
    tiny, text = checkpoint("llama"), words(10)
    lm = Transformer.load(tiny.folder)
    lm.tap((1, 3))
    lm(text, Draft((4, 5, 6), (ROOT, ROOT, 1)))
    before = lm.forwards
    taken = text + (5, 6, 9)                       # 9 has not been fed
    assert far(lm.features(taken), tiny.states(taken)[:-1, [1, 3]]) < CLOSE
    assert lm.forwards == before


def test_features_without_taps_or_before_feeding_are_refused(checkpoint, words):
    lm = Transformer.load(checkpoint("llama").folder)
    with pytest.raises(ValueError, match="tap"):
        lm.features((1, 2))
    with pytest.raises(ValueError, match="between 0 and 3"):
        lm.tap((4,))
    lm.tap((3,))
    lm.prefill((1, 2, 3))
    with pytest.raises(ValueError, match="only 2 of these 4"):
        lm.features((1, 2, 9, 9))
    lm.exit(1)((1, 2, 3, 4, 5), Draft())
    with pytest.raises(ValueError, match="only 3 of these 5"):
        lm.features((1, 2, 3, 4, 5))


def test_a_restricted_head_gives_these_rows_of_the_full_one_and_names_their_tokens(checkpoint, words):
    tiny, text, ids = checkpoint("llama3"), words(12), torch.tensor([3, 50, 7, 96])
    draft = deterministic_chain((1, 2))
    full = Transformer.load(tiny.folder)(text, draft)
    for lm in (Transformer.load(tiny.folder, ids=ids), Transformer.load(tiny.folder).restricted(ids)):
        scores = lm(text, draft)
        assert far(scores.logits, full.logits[:, ids]) < 1e-5
        assert scores.best == tuple(ids[full.logits[:, ids].argmax(-1)].tolist())
    there = Transformer.load(tiny.folder, device="meta")
    for lm in (there.restricted(ids), Transformer.load(tiny.folder, device="meta", ids=ids)):
        assert lm.ids.device == there.device       # graphs copy none
