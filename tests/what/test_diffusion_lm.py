"""A diffusion language model drafts a block in one forward."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.dice import Dice
from specdec_lib.heads.dream_llada import load_pretrained
from specdec_lib.loop import begin
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import NO_DICE, Budget, Refusal
from tests.heads.test_dream_llada import made
from tests.worlds import PROMPT, WARM, network_kit, random_diffusion

IDS = tuple(range(2, 30, 2))
SHAPE = LlamaConfig(layers=2, hidden=16, heads=2, kv_heads=1, head_dim=8, mlp=32, vocab=32, context=64)
TEXT = (4, 9, 20, 31, 8, 11, 2)


def world() -> Kit:
    """A vocabulary large enough that the slots of a block differ."""
    return Kit(Transformer.random(SHAPE, seed=1), TokenizerFacts(vocab=32), parts=catalog.make_part,
               checkpoints={"diffusion-lm": random_diffusion(SHAPE, IDS)})


@pytest.mark.parametrize("steps", [1, 3])
def test_it_drafts_the_best_token_of_every_slot_in_one_forward_per_step(steps):
    part = world().part("diffusion-lm", steps=steps)
    draft = part(begin(TEXT, 9), Budget(5), NO_DICE)
    lattice = world().part("diffusion-lm").head.lattice(TEXT, 5, steps)
    assert draft.tokens == tuple(lattice.ids[:, 0].tolist())
    assert part.head.forwards == steps
    assert draft.confidence == pytest.approx(lattice.logp[:, 0].exp().tolist(), rel=1e-5)
    assert draft.parents == (-1, 0, 1, 2, 3)
    assert draft.source == ("diffusion-lm",) * 5
    assert set(draft.tokens) <= set(IDS)


def test_every_node_is_deterministic_at_every_temperature_and_needs_no_dice():
    part = world().part("diffusion-lm")
    cold = part(begin(TEXT, 9), Budget(4), NO_DICE)
    warm = part(begin(TEXT, 9, sampling=WARM), Budget(4), NO_DICE)
    assert warm == cold
    assert all(warm.distribution(node) is None for node in range(4))
    assert part(begin(TEXT, 9, sampling=WARM), Budget(4), Dice(3)) == cold


def test_token_statistics_are_of_the_raw_distributions_and_a_stop_rule_cuts_after_it_fires():
    part = world().part("diffusion-lm")
    whole = part(begin(TEXT, 9), Budget(5), NO_DICE)
    dists = part.head.dists(TEXT, 5).double().exp()
    for stat, dist in zip(whole.stats, dists, strict=True):
        top = dist.topk(2).values.tolist()
        assert (stat.first, stat.second) == pytest.approx(top, rel=1e-4)
        assert stat.prob == stat.first
        assert stat.entropy == pytest.approx(float(torch.special.entr(dist).sum()), rel=1e-4)
    cut = part(begin(TEXT, 9), Budget(5, stop=lambda trail: len(trail) == 2), NO_DICE)
    assert cut == whole.keep((0, 1))


def test_the_block_length_is_independent_of_the_drafted_slots():
    part, alone = (world().part("diffusion-lm", **more) for more in ({"block": 6}, {}))
    one, two = (part(begin(TEXT, 20), Budget(depth), NO_DICE) for depth in (6, 2))
    assert two == one.keep((0, 1))
    assert alone(begin(TEXT, 20), Budget(2), NO_DICE).confidence != two.confidence
    assert len(part(begin(TEXT, 20), Budget(8), NO_DICE)) == 8


def test_an_empty_budget_costs_no_forward():
    part = world().part("diffusion-lm")
    assert len(part(begin(TEXT, 9), Budget(0), NO_DICE)) == 0 == part.head.forwards
    assert len(part(begin(TEXT, 9), Budget(3, nodes=2), NO_DICE)) == 2


def test_the_draft_ends_with_the_first_end_token():
    part = world().part("diffusion-lm")
    whole = part(begin(TEXT, 9), Budget(6), NO_DICE).tokens
    ended = part(begin(TEXT, 9, end=frozenset({whole[2]})), Budget(6), NO_DICE).tokens
    assert ended == whole[:whole.index(whole[2]) + 1]


def test_a_note_counts_the_text_outside_the_window():
    part, text = world().part("diffusion-lm", window=10), tuple(range(20))
    assert "unseen" not in part(begin(text[:7], 9), Budget(4), NO_DICE).notes
    draft = part(begin(text, 9), Budget(4), NO_DICE)
    assert draft.notes == {"unseen": 15}
    assert draft.tokens == world().part("diffusion-lm")(begin(text[15:], 9), Budget(4), NO_DICE).tokens


@pytest.mark.parametrize(("values", "words"), [
    ({"weights": "eagle"}, "got 'eagle'"),
    ({"weights": "diffusion-lm-aligned"}, "specdec train diffusion-lm-aligned"),
    ({"steps": 0}, "got 1 and 0"), ({"block": 0}, "got 0 and 1"), ({"window": 2}, "window")])
def test_an_impossible_parameter_is_refused(values, words):
    with pytest.raises(Refusal, match=words):
        network_kit().part("diffusion-lm", **values)


def test_a_target_without_weights_is_refused():
    with pytest.raises(Refusal, match="embedding"):
        replace(network_kit(), target=SimpleNamespace()).part("diffusion-lm")


@pytest.mark.parametrize("family", ["Dream", "LLaDA"])
def test_a_pretrained_model_uses_its_own_embedding_with_a_target_without_weights(family, tmp_path):
    loaded = load_pretrained(made(family, tmp_path).folder, range(32))
    kit = replace(world(), target=SimpleNamespace(), checkpoints={"diffusion-lm": loaded})
    part = kit.part("diffusion-lm", block=4, window=10)
    draft = part(begin(TEXT, 9), Budget(3), NO_DICE)
    assert draft.notes == {"unseen": 1}
    assert set(draft.tokens) <= set(range(32))
    assert draft.tokens == tuple(loaded.head().lattice(TEXT[1:], 4).ids[:3, 0].tolist())
    assert part(begin(TEXT, 9), Budget(2), NO_DICE) == draft.keep((0, 1))


def test_it_drafts_after_any_prompt():
    part = network_kit().part("diffusion-lm")
    assert len(part(begin((1,), 9), Budget(3), NO_DICE)) == len(part(begin(PROMPT, 9), Budget(3), NO_DICE)) == 3


@pytest.mark.parametrize(("steps", "block"), [(1, 1), (3, 1), (1, 6)])
def test_its_lattice_has_the_candidates_of_the_slots_that_it_drafts_from(steps, block):
    def part():
        return world().part("diffusion-lm", steps=steps, block=block)

    lattice, draft = part().lattice(begin(TEXT, 20), 4, 3), part()(begin(TEXT, 20), Budget(4), NO_DICE)
    assert lattice.ids.shape == lattice.logp.shape == (4, 3)
    assert bool((lattice.logp.diff(dim=1) <= 0).all())
    assert tuple(lattice.ids[:, 0].tolist()) == draft.tokens
    assert lattice.logp[:, 0].exp().tolist() == pytest.approx(draft.confidence, rel=1e-5)
    whole = part().lattice(begin(TEXT, 20), 4, 99)
    assert whole.ids.shape == (4, len(IDS))
    assert torch.allclose(whole.logp.exp().sum(-1), torch.ones(4), atol=1e-5)


def test_a_lattice_of_no_slots_is_an_error():
    with pytest.raises(ValueError, match="slot"):
        world().part("diffusion-lm", block=6).lattice(begin(TEXT, 9), 0)


def test_the_named_weights_draft():
    kit = world()
    other = random_diffusion(SHAPE, IDS, seed=9)
    both = replace(kit, checkpoints={**kit.checkpoints, "diffusion-lm-aligned": other})
    aligned = both.part("diffusion-lm", weights="diffusion-lm-aligned")(begin(TEXT, 9), Budget(5), NO_DICE)
    alone = replace(kit, checkpoints={"diffusion-lm": other}).part("diffusion-lm")(begin(TEXT, 9), Budget(5), NO_DICE)
    assert aligned == alone != both.part("diffusion-lm")(begin(TEXT, 9), Budget(5), NO_DICE)
