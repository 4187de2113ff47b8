"""The same bodies on a CPU in every run of the tests, and on a CUDA device by `specdec gpu`: it says what a CPU says.

Tiny models with random weights in float32, without TF32; the default target where it is in the cache.
"""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.bench.runners import SynchronizedTarget
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.heads.block_diffusion import block_head
from specdec_lib.heads.eagle import EagleHead
from specdec_lib.heads.eagle_tree import Growth
from specdec_lib.hub import default_model, locate
from specdec_lib.loop import decode
from specdec_lib.models.device import wait_for_stream
from specdec_lib.models.llama.batched import BatchedLlama
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.cuda_graph import WIDTHS
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.greedy_chain import captured_chain, greedy_chain
from specdec_lib.models.llama.weights import fuse, size_of
from specdec_lib.models.ngram import Ngram
from specdec_lib.toys.tiny_target import ToyText, fit_toy, toy_answers
from specdec_lib.training.data.batched_sampling import Request, sample_batched
from specdec_lib.training.data.dataset import make_dataset
from specdec_lib.training.data.ngram_counts import count_ngrams
from specdec_lib.training.eval.card import teacher_forced_rates
from specdec_lib.training.recipes import RECIPES
from specdec_lib.types import Budget, Draft
from specdec_lib.what.eagle2 import grow_candidates
from tests.conftest import random_rounds, random_text, random_tree
from tests.heads.published_block import with_published
from tests.worlds import random_block_diffusion, random_diffusion, random_eagle, random_exits, random_lengths

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
SHAPE = LlamaConfig(layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=128, vocab=97, context=2048)
TAPS, IDS = (0, 2, 4), tuple(range(0, 97, 2))
CLOSE = 2e-3
REAL = locate.cache_home() / f"{locate.DEFAULT}-{default_model.SHA256[:8]}"
MODELS = ["tiny", *(["real"] if (REAL / "manifest.json").is_file() else [])]
METHODS = [name for name, card in catalog.methods().items()
           if card.lossless and name != "ar" and "g2p-drafter" not in catalog.needed_checkpoints(name)]
torch.set_float32_matmul_precision("highest")
pytestmark = pytest.mark.parametrize("device", DEVICES)


@cache
def weights(device: str, seed: int = 0):
    """The same random weights on every device."""
    dice = torch.Generator().manual_seed(seed)

    def get(name):
        size = size_of(SHAPE, name)
        return torch.ones(size) if "norm" in name else torch.randn(size, generator=dice) * size[1] ** -0.5
    return fuse(SHAPE, get, torch.float32, device)


@cache
def real(device: str):
    return Transformer.load(REAL, torch.float32, device)


def model(name: str, device: str, static: bool | None = None) -> Transformer:
    return Transformer(weights(device) if name == "tiny" else real(device).weights, static=static)


def far(one, other) -> float:
    return float((one.cpu() - other.cpu()).abs().max())


@pytest.mark.parametrize("static", [True, False], ids=["captured", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_of_chains_and_trees_and_features_are_those_of_a_cpu(device, name, static):
    lm, cpu = model(name, device, static), model(name, "cpu", False)
    for one in (lm, cpu):
        one.tap((1, 3))
    for chain in (True, False):
        for tokens, draft in random_rounds(seed=3, rounds=10 if name == "tiny" else 4, start=40, chain=chain):
            mine, want = lm(tokens, draft), cpu(tokens, draft)
            assert far(mine.logits, want.logits) < CLOSE
            assert far(lm.features(tokens), cpu.features(tokens)) < CLOSE
            assert mine.best == want.best


@pytest.mark.parametrize("static", [True, False], ids=["captured", "eager"])
def test_a_cache_that_aligned_itself_says_what_an_empty_one_says(device, static):
    lm = model("tiny", device, static)
    for tokens, draft in random_rounds(seed=5, rounds=24, start=30, back=.3):
        assert far(lm(tokens, draft).logits, lm.fresh()(tokens, draft).logits) < 1e-4


@pytest.mark.parametrize("products", [False, True], ids=["fused", "products"])
def test_a_captured_step_equals_its_arithmetic_bit_by_bit_at_every_width(device, products):
    lm = model("tiny", device, True)
    lm.products = products
    text = random_text(random.Random(1), 300)
    lm.prefill(text[:-1])
    for width in WIDTHS:
        lm(text, random_tree(random.Random(width), width - 1))
        step = lm.lease.held.last
        assert step.width == width
        with torch.inference_mode():
            launched = [part.clone() for part in step.launch()]
            assert all(map(torch.equal, launched, step.compute()))
        assert bool(torch.isfinite(launched[1]).all())
        lm.prefill(text[:-1])                      # or the rows of the last draft are there already


def test_a_captured_chain_equals_its_arithmetic_bit_by_bit_and_drafts_what_an_eager_one_drafts(device):
    state, dice = random_eagle(SHAPE, TAPS, IDS).state, random.Random(6)
    fixed, eager = (EagleHead(state, TAPS, model("tiny", device, static), text_tokens=True) for static in (True, False))
    text = random_text(dice, 230)                  # it grows beyond the 256 columns of the first chains
    for count in (5, 5, 1, 8, 5, 3, 5, 12, 5):
        mine, want = fixed.chain(text, count), eager.chain(text, count)
        assert mine.best == want.best
        assert far(mine.logits, want.logits) < CLOSE
        chain = fixed.lease.held.last
        assert chain.count == count
        with torch.inference_mode():
            launched = [part.clone() for part in chain.launch()]
            assert all(map(torch.equal, launched, chain.compute()))
        text += mine.best[:dice.randrange(count + 1)] + random_text(dice, 2)
    assert {chain.columns for chain in fixed.lease.held.chains.values()} == {256, 512}


def test_a_draft_models_chain_equals_its_arithmetic_bit_by_bit_and_is_the_one_that_is_asked_token_by_token(device):
    fixed, eager, dice = model("tiny", device, True), model("tiny", device, False), random.Random(6)
    text = random_text(dice, 230)                  # it grows beyond the 256 columns of the first chains
    for count in (5, 5, 1, 8, 5, 3, 5, 12, 5):
        mine = greedy_chain(fixed, text, count)
        want = eager(text, Draft(mine.best[:-1], tuple(range(-1, count - 2))))
        assert mine.best == want.best
        assert far(mine.logits, want.logits) < CLOSE
        chain = captured_chain(fixed, len(text), count)
        with torch.inference_mode():
            launched = [part.clone() for part in chain.launch()]
            assert all(map(torch.equal, launched, chain.compute()))
        text += mine.best[:dice.randrange(count + 1)] + random_text(dice, 2)
    assert {chain.columns for chain in fixed.lease.held.chains.values()} == {256, 512}


def test_a_captured_tree_equals_its_arithmetic_bit_by_bit_and_is_the_one_that_is_grown_in_python(device):
    state, dice = random_eagle(SHAPE, TAPS, IDS).state, random.Random(6)
    fixed, eager = (EagleHead(state, TAPS, model("tiny", device, static), text_tokens=True) for static in (True, False))
    eager.compiled = None
    text = random_text(dice, 230)                  # it grows beyond the 256 columns of the first trees
    for width, size in ((4, 12), (4, 3), (1, 5), (6, 40), (13, 31), (4, 12)):
        budget = Budget(5, width, size)
        mine = fixed.tree(text, Growth(5, width, budget.size, 0.0, frozenset((7, 9)), 1.1))
        want = grow_candidates(frozenset((7, 9)), budget, lambda fed, text=text: eager(text, fed), 1.1)
        assert [(node.token, node.parent) for node in mine] == [(node.token, node.parent) for node in want]
        assert all(abs(one.score - other.score) < CLOSE for one, other in zip(mine, want, strict=True))
        tree = fixed.lease.held.last
        with torch.inference_mode():
            launched = [part.clone() for part in tree.launch()]
            assert all(map(torch.equal, launched, tree.compute()))
        text += random_text(dice, 7)
    assert {tree.columns for tree in fixed.lease.held.trees.values()} == {256, 512}


@pytest.mark.parametrize("whose", ["ours", "published"])
def test_a_captured_block_equals_its_arithmetic_bit_by_bit_and_is_an_eager_ones(device, whose, tmp_path):
    kit, dice = output_kit(device), random.Random(6)
    drafter = (kit if whose == "ours" else with_published(kit, tmp_path)).checkpoints["block-diffusion"]
    fixed, eager = (block_head(drafter, model("tiny", device, static)) for static in (True, False))
    text = random_text(dice, 235)                  # it grows beyond the 256 columns of the first blocks
    for depth in (4, 1, 4, 3, 4):
        mine, want = fixed(text, depth), eager(text, depth)
        assert mine.tokens == want.tokens
        assert far(mine.lattice.logp, want.lattice.logp) < CLOSE
        block = fixed.lease.held.last
        with torch.inference_mode():
            launched = [part.clone() for part in block.launch()]
            assert all(map(torch.equal, launched, block.compute()))
        text += random_text(dice, 7)
    assert {block.place.columns for block in fixed.lease.held.blocks.values()} == {256, 512}


@pytest.mark.parametrize("name", ["eagle", "eagle2", "block-diffusion"])
def test_methods_with_captured_drafts_emits_plain_decodings_ids(device, name):
    for length in (11, 300):
        kit, prompt = output_kit(device, True), random_text(random.Random(length), length)
        method = catalog.build(name, kit)
        *_, session = decode(prompt, kit.target, *method, max_new_tokens=40)
        *_, plain = decode(prompt, model("tiny", device, True), *catalog.build("ar", kit), max_new_tokens=40)
        assert session.output == plain.output
        head = method.what.head
        assert (head.lease.held.last is not None) == (device == "cuda" or name != "eagle")   # a CPU asks token by token


def output_kit(device: str, static: bool | None = None) -> Kit:
    """The tiny target with a drafter of every kind, none of them trained."""
    target = Transformer(weights(device), static=static)
    pairs = [[i * k % 97 for i in range(60)] for k in (1, 3, 5)]
    diffusion = random_diffusion(SHAPE, IDS)
    heads = {"eagle": random_eagle(SHAPE, TAPS, IDS), "early-exit": random_exits(SHAPE, (1, 2), IDS),
             "block-diffusion": random_block_diffusion(SHAPE, TAPS, IDS), "diffusion-lm": diffusion,
             "diffusion-lm-aligned": replace(diffusion, name="diffusion-lm-aligned"),
             "ngram": Ngram(count_ngrams(pairs, 97)),
             "length-predictor": random_lengths(SHAPE, ("eagle", "draft-model", "early-exit"))}
    return Kit(target, TokenizerFacts(vocab=97), nodes=8, draft=target.first_layers(2), checkpoints=heads,
               parts=catalog.make_part)


@cache
def world(device: str) -> Kit:
    return output_kit(device)


def output(name: str, device: str, tokens: int = 40):
    base = world(device)
    fresh = replace(base, target=base.target.fresh(), draft=base.draft.fresh(), indexes={}, memory={})
    *_, session = decode((3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4), fresh.target, *catalog.build(name, fresh),
                         max_new_tokens=tokens)
    return session.output


@pytest.mark.parametrize("method", METHODS)
def test_a_lossless_method_emits_plain_decodings_ids(device, method):
    assert output(method, device) == output("ar", device)


def rounds(spec: str, device: str, kit: Kit, length: int) -> list[tuple]:
    """What each round of a decode drafted and emitted, with the blocking prefill of a measured one."""
    fresh = replace(kit, target=kit.target.fresh(), draft=kit.draft.fresh(), indexes={}, memory={})
    target = SynchronizedTarget(fresh.target, wait_for_stream if device == "cuda" else lambda: None)
    *_, session = decode(random_text(random.Random(length), length), target, *catalog.build(spec, fresh),
                         max_new_tokens=24)
    return [(one.draft.tokens, one.draft.parents, one.verdict.tokens) for one in session.rounds]


@pytest.mark.parametrize("first", ["thread", "inline"])
@pytest.mark.parametrize("spec", ["pearl(depth=3,workers='{}')", "ppsd(workers='{}')",
                                  "duodecoding(depth=3,workers='{}')", "double(depth=3,workers='{}')"])
def test_a_drafter_in_a_thread_drafts_what_it_drafts_in_turn(device, spec, first):
    weights.cache_clear()                          # so that steps and chains are captured beside the working target
    kit, lengths = output_kit(device), (11, 200, 600)
    kinds = (first, *({"thread", "inline"} - {first}))
    told = {kind: [rounds(spec.format(kind), device, kit, length) for length in lengths] for kind in kinds}
    assert told["thread"] == told["inline"]


@pytest.mark.parametrize("method", ["pearl", "ppsd", "specbranch", "duodecoding", "double"])
def test_a_drafter_in_a_thread_has_a_stream_and_graphs_of_its_own(device, method):
    assert output(f"{method}(workers='thread')", device) == output("ar", device)


def test_plain_decoding_emits_the_ids_of_a_cpu(device):
    assert output("ar", device) == output("ar", "cpu")


def test_many_texts_at_once_are_those_of_a_cpu(device):
    def replies(where):
        asked = iter([Request(random_text(random.Random(i), 5 + i), 24, 0.0, i) for i in range(6)])
        return {one.request.key: one.output for one in
                sample_batched(BatchedLlama(weights(where)), lambda: next(asked, None), (), 24, rows=4)}
    assert replies(device) == replies("cpu")


@pytest.fixture(scope="module")
def toy_lessons(tmp_path_factory):
    """lessons(device): a small data set of the tiny target on this device."""
    @cache
    def made(where):
        target = Transformer(weights(where))
        return target, make_dataset(target, ToyText(), toy_answers(target, 60, 16),
                                    tmp_path_factory.mktemp("features"), rows=64, batch=512)
    return made


@pytest.mark.parametrize("name", RECIPES)
def test_a_step_of_training_runs_and_changes_the_drafter(device, name, toy_lessons, tmp_path):
    target, lessons = toy_lessons(device)
    _, drafter = fit_toy(name, target, lessons, tmp_path, steps=1)
    told = teacher_forced_rates(RECIPES[name], drafter, lessons.held_out(drafter.levels, 1))
    assert all(told.values())                      # it is measured where it was trained
    state = drafter.state()
    assert all(bool(torch.isfinite(tensor.float()).all()) for tensor in state.values())
    _, again = fit_toy(name, target, lessons, tmp_path / "more", steps=2)
    assert any(far(tensor.float(), again.state()[key].float()) > 0 for key, tensor in state.items())


def test_logits_fed_to_the_host_are_one_row_each(device):
    scores = model("tiny", device, True)((1, 2, 3), Draft((4, 5), (-1, -1)))
    assert scores.row_stats((0, 2)).lse == pytest.approx(
        torch.logsumexp(scores.logits.double(), -1)[[0, 2]].tolist(), abs=1e-4)
    assert scores.best == tuple(scores.logits.argmax(-1).tolist())
