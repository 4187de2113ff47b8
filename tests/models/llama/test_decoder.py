"""Our decoder gives transformers' logits, whatever was fed, drafted, accepted, rejected or cut before."""

import copy
import random

import pytest
import torch
from transformers import AutoModelForCausalLM

from specdec_lib.loop import decode
from specdec_lib.models.llama import attention, forward
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer, row_stats_of
from specdec_lib.scores import Scores
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import ROOT, Budget, Draft, Verdict
from tests.conftest import Checkpoint
from tests.models.llama.distance import CLOSE, far

FAMILIES = ("llama", "llama3", "llama linear", "mistral", "qwen2", "qwen3", "phi3", "granite", "yarn", "smollm3")


def expected(tiny, path, tokens, draft, dtype=torch.float32):
    """Each row's logits from transformers, which reads each path alone."""
    return torch.stack([tiny.logits(tokens + path(draft, node), dtype)[-1] for node in range(ROOT, len(draft))])


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers_for_text_read_at_once(checkpoint, words, family):
    tiny, text = checkpoint(family), words(90)
    scores = Transformer.load(tiny.folder)(text[:1], deterministic_chain(text[1:]))
    assert far(scores.logits, tiny.logits(text)) < CLOSE


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers_token_by_token_with_the_cache(checkpoint, words, family):
    tiny, text = checkpoint(family), words(30)
    lm = Transformer.load(tiny.folder)
    rows = [lm(text[:n], Draft()).logits[0] for n in range(1, 31)]
    assert far(torch.stack(rows), tiny.logits(text)) < CLOSE
    assert lm.fed == 30


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tree_scores_each_path_as_if_it_were_alone_whatever_was_accepted_before(checkpoint, rounds, path, family):
    tiny = checkpoint(family)
    lm = Transformer.load(tiny.folder)
    for tokens, draft in rounds(seed=1, rounds=12):
        assert far(lm(tokens, draft).logits, expected(tiny, path, tokens, draft)) < CLOSE


def test_double_precision_agrees_with_itself_to_the_last_digits(checkpoint, rounds):
    weights = Transformer.load(checkpoint("llama3").folder, torch.float64).weights
    lm = Transformer(weights)
    for tokens, draft in rounds(seed=2, rounds=40):
        scores = lm(tokens, draft)
        assert scores.logits.dtype == torch.float64
        assert far(scores.logits, Transformer(weights)(tokens, draft).logits) < 1e-11


def test_double_precision_agrees_with_transformers(checkpoint, words):
    tiny, text = checkpoint("qwen3"), words(40)
    scores = Transformer.load(tiny.folder, torch.float64)(text[:1], deterministic_chain(text[1:]))
    assert far(scores.logits, tiny.logits(text, torch.float64)) < CLOSE


@pytest.mark.parametrize("family", ["qwen2", "llama linear", "granite"])         # biases, and factors like 1 / sqrt(8)
def test_a_checkpoint_in_half_precision_gives_transformers_logits_in_single_precision(checkpoint, words, tmp_path,
                                                                                      family):
    text = words(40)
    copy.deepcopy(checkpoint(family).model).to(torch.bfloat16).save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, local_files_only=True)
    scores = Transformer.load(tmp_path)(text[:1], deterministic_chain(text[1:]))
    assert far(scores.logits, Checkpoint(tmp_path, model).logits(text)) < CLOSE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_errs_no_more_than_transformers_does_and_scores_in_single_precision(checkpoint, words, dtype):
    tiny, text = checkpoint("llama"), words(60)
    want, theirs = tiny.logits(text), tiny.logits(text, dtype)
    scores = Transformer.load(tiny.folder, dtype)(text[:1], deterministic_chain(text[1:]))
    assert scores.logits.dtype == torch.float32
    assert (scores.logits - want).pow(2).mean() < 1.3 * (theirs.float() - want).pow(2).mean()


def test_only_new_tokens_are_fed_when_a_draft_was_accepted(checkpoint, words):
    text = words(20)
    lm = Transformer.load(checkpoint("llama").folder)
    lm.prefill(text[:-1])
    assert lm.fed == 19
    lm(text, Draft((1, 2, 3), (ROOT, ROOT, 1)))
    assert lm.fed == 19 + 4
    lm(text + (2, 3, 50), Draft((7,), (ROOT,)))                # the second branch was taken, and 50 came on top
    assert lm.fed == 23 + 2


def test_a_draft_that_grows_costs_its_new_node_alone_and_leaves_old_scores_as_they_were(checkpoint, words, path):
    tiny, text, dice = checkpoint("llama"), words(20), random.Random(0)
    lm, handed_out = Transformer.load(tiny.folder), []
    for draft in grown(dice, 25):
        before = lm.fed
        scores = lm(text, draft)
        handed_out.append((scores, scores.logits.clone()))
        assert lm.fed - before == (len(text) if not len(draft) else 1)
    assert far(scores.logits, expected(tiny, path, text, draft)) < CLOSE
    assert all(torch.equal(scores.logits, copy) for scores, copy in handed_out)


def grown(dice, nodes):
    draft = Draft()
    yield draft
    for node in range(nodes):
        draft = Draft(draft.tokens + (node,), draft.parents + (dice.randrange(ROOT, node),))
        yield draft


def test_a_draft_that_branches_off_the_last_one_leaves_the_first_ones_scores_as_they_were(checkpoint, words, path):
    tiny, text = checkpoint("llama"), words(20)
    lm = Transformer.load(tiny.folder)
    stem = Draft((5, 6), (ROOT, 0))
    lm(text, stem)
    first = lm(text, Draft((5, 6, 7), (ROOT, 0, 1)))
    copy = first.logits.clone()
    other = Draft((5, 6, 8), (ROOT, 0, 0))
    assert far(lm(text, other).logits, expected(tiny, path, text, other)) < CLOSE
    assert torch.equal(first.logits, copy)


def test_a_shorter_draft_of_the_same_context_costs_nothing(checkpoint, words):
    text = words(20)
    lm = Transformer.load(checkpoint("llama").folder)
    whole = lm(text, deterministic_chain((1, 2, 3))).logits
    fed = lm.fed
    assert torch.equal(lm(text, deterministic_chain((1,))).logits, whole[:2])
    assert lm.fed == fed


@pytest.mark.parametrize("start", [505, 1018])
def test_nothing_changes_where_the_cache_grows(checkpoint, rounds, start):
    weights = Transformer.load(checkpoint("llama3").folder, torch.float64).weights
    lm = Transformer(weights, taps=(1,))
    for tokens, draft in rounds(seed=3, rounds=12, start=start, back=0):
        if not lm.forwards:
            lm.prefill(tokens[:-1])
        assert far(lm(tokens, draft).logits, Transformer(weights)(tokens, draft).logits) < 1e-11
    assert lm.cache.capacity > 512 * (start // 512 + 1)
    fed = lm.features(tokens)
    whole = Transformer(weights, taps=(1,))
    whole.prefill(tokens)
    assert far(fed, whole.features(tokens)) < 1e-11


def test_plain_products_over_a_long_context_equal_the_fused_kernel(checkpoint, rounds, monkeypatch):
    weights = Transformer.load(checkpoint("llama3").folder, torch.float64).weights
    fused, plain = Transformer(weights), Transformer(weights)
    for tokens, draft in rounds(seed=5, rounds=12, start=560, back=0.2):
        want = fused(tokens, draft).logits
        with monkeypatch.context() as patch:
            patch.setattr(attention, "HALF", (torch.float64,))
            assert far(plain(tokens, draft).logits, want) < 1e-11


def test_a_long_prompt_is_read_in_chunks_with_the_same_result(checkpoint, words):
    tiny, text = checkpoint("llama"), words(1300)
    lm = Transformer.load(tiny.folder)
    assert far(lm(text, Draft()).logits[0], tiny.logits(text)[-1]) < CLOSE
    assert lm.forwards == 3
    assert lm.fed == 1300


def test_greedy_decoding_emits_what_transformers_generate_emits(checkpoint, words):
    tiny, text = checkpoint("qwen2"), words(15)
    want = tiny.model.generate(torch.tensor([text]), attention_mask=torch.ones(1, 15), max_new_tokens=30,
                               do_sample=False, eos_token_id=None, pad_token_id=0)
    *_, session = decode(text, Transformer.load(tiny.folder), lambda session, dice: Budget(), lambda *_: Draft(),
                         lambda session, draft, scores, dice: Verdict.of(draft, (), scores.best[0]), max_new_tokens=30)
    assert session.tokens == tuple(want[0].tolist())


def test_bidirectional_nodes_see_the_context_and_each_other_and_are_not_kept(checkpoint, rounds):
    tiny = checkpoint("llama")
    lm = Transformer.load(tiny.folder).fresh(bidirectional=True)
    for tokens, draft in rounds(seed=7, rounds=10, chain=True):
        for nodes in (len(draft) // 2, len(draft), len(draft)):    # grown, and then once more from memory
            part = draft.keep(tuple(range(nodes)))
            assert far(lm(tokens, part).logits, both_ways(tiny, tokens, part)) < CLOSE


def both_ways(tiny, tokens, draft):
    """transformers' logits from the last context token on, where every node sees every other."""
    size = len(tokens) + len(draft)
    seen = torch.ones(size, size, dtype=torch.bool).tril()
    seen[len(tokens):] = True
    mask = torch.zeros(1, 1, size, size).masked_fill_(~seen, torch.finfo(torch.float32).min)
    with torch.no_grad():
        out = tiny.model(torch.tensor([tokens + draft.tokens]), attention_mask=mask, use_cache=False)
    return out.logits[0, len(tokens) - 1:]


def test_steps_of_fixed_width_equal_plain_steps(checkpoint, rounds):
    weights = Transformer.load(checkpoint("llama3").folder, torch.float64).weights
    fixed, plain = Transformer(weights, (1, 3), static=True), Transformer(weights, (1, 3))
    early = fixed.exit(1)
    for turn, (tokens, draft) in enumerate(rounds(seed=8, rounds=30, start=490)):
        if turn % 3 == 0:
            early(tokens, draft)
        mine, want = fixed(tokens, draft), plain(tokens, draft)
        assert far(mine.logits, want.logits) < 1e-11
        assert mine.best == want.best              # from the statistics of the step's rows, not of its padding
        assert mine.row_stats((0,)).entropy == pytest.approx(want.row_stats((0,)).entropy)
        assert far(fixed.features(tokens), plain.features(tokens)) < 1e-11
    assert {key[0] for key in fixed.steps} >= {1, 4, 8}


def test_in_steps_of_fixed_width_nodes_that_join_a_tree_later_see_their_ancestors_alone(checkpoint, words):
    weights = Transformer.load(checkpoint("llama").folder, torch.float64).weights
    fixed, plain = Transformer(weights, static=True), Transformer(weights)
    text, tree = words(20), Draft((1, 2, 3, 4, 5, 6, 7), (-1, -1, 0, 1, 2, 0, -1))
    for size in (2, 3, 5, 7):
        draft = Draft(tree.tokens[:size], tree.parents[:size])
        assert far(fixed(text, draft).logits, plain(text, draft).logits) < 1e-11
    assert fixed.fed == len(text) + len(tree)


def test_a_fixed_width_uses_the_same_memory_every_time(checkpoint, words):
    lm = Transformer(Transformer.load(checkpoint("llama").folder).weights, static=True)
    text = words(20)
    lm(text, deterministic_chain((1, 2, 3)))
    (step,) = lm.steps.values()
    places = [step.inputs.data_ptr(), lm.cache.kv.data_ptr(), lm.rope[0].data_ptr()]
    lm.prefill(text[:2])
    lm(text, deterministic_chain((4, 5, 6, 7)))
    assert step in lm.steps.values()
    assert [step.inputs.data_ptr(), lm.cache.kv.data_ptr(), lm.rope[0].data_ptr()] == places


def test_fresh_shares_weights_and_no_rows(checkpoint, words):
    lm, text = Transformer.load(checkpoint("llama").folder), words(8)
    lm(text, Draft())
    other = lm.fresh()
    other(text, Draft())
    assert other.weights is lm.weights
    assert other.fed == 8


def test_row_statistics_moved_in_one_transfer_equal_those_of_the_logits():
    logits = torch.randn(4, 4096, generator=torch.Generator().manual_seed(0))
    want, have = Scores(logits).row_stats((0, 2)), Scores(logits,
                                                          row_stats=row_stats_of(logits, None)).row_stats((0, 2))
    assert torch.equal(have.ids, want.ids)
    assert torch.equal(have.logits, want.logits)
    assert have.lse == pytest.approx(want.lse)
    assert have.entropy == pytest.approx(want.entropy)


def test_the_norm_without_weight_is_the_root_mean_square_norm():
    x = torch.randn(5, 48, generator=torch.Generator().manual_seed(0))
    assert far(forward.scaled(x, 1e-3), x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)) < 1e-6


def test_random_weights_make_a_model():
    lm = Transformer.random(LlamaConfig(2, 16, 4, 2, 4, 24, 3, 64), seed=1, dtype=torch.float64)
    assert lm((0, 1), Draft((2,), (ROOT,))).logits.shape == (2, 3)
    assert lm.context == 64
    assert lm.vocab == 3


def test_scores_name_the_first_of_equal_logits_and_the_entropy_of_the_raw_softmax():
    logits = torch.randn(3, 4096, generator=torch.Generator().manual_seed(0)).mul(4).round()      # full of ties
    scores = Scores(logits)
    assert scores.best == tuple(logits.argmax(-1).tolist())
    dist = torch.distributions.Categorical(logits=logits[[0, 2]].double())
    row_stats = scores.row_stats((0, 2))
    assert row_stats.entropy == pytest.approx(dist.entropy().tolist(), abs=1e-4)
    assert row_stats.lse == pytest.approx(torch.logsumexp(logits[[0, 2]].double(), -1).tolist(), abs=1e-4)
