"""Path search drafts the searched path of a diffusion drafter's lattice, deterministic and with notes."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from specdec_lib import catalog, lattice
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.loop import begin
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.ngram import Ngram
from specdec_lib.training.data.ngram_counts import count_ngrams
from specdec_lib.trees import deterministic_tree
from specdec_lib.types import NO_DICE, Budget, Lattice, Refusal
from specdec_lib.what.path_search import PathSearch
from specdec_lib.when.confidence import BelowConfidence
from tests.worlds import PROMPT, WARM, network_kit, random_block_diffusion, random_diffusion

IDS = tuple(range(2, 30, 2))
SHAPE = LlamaConfig(layers=2, hidden=16, heads=2, kv_heads=1, head_dim=8, mlp=32, vocab=32, context=64)
TEXT = (4, 9, 20, 31, 8, 11, 2)
SENTENCES = [(2, 4, 6, 8, 10, 12), (2, 28, 26, 24, 28, 26, 24, 6), (20, 22, 4, 14, 16, 18, 10, 12, 2)]


def world(**lacks) -> Kit:
    """A larger vocabulary, with a trigram of a few sentences."""
    heads = {"diffusion-lm": random_diffusion(SHAPE, IDS), "ngram": Ngram(count_ngrams(SENTENCES, 32)),
             "block-diffusion": random_block_diffusion(SHAPE, (0, 1, 2), IDS, block=6, candidates=8)}
    return Kit(Transformer.random(SHAPE, seed=1), TokenizerFacts(vocab=32), parts=catalog.make_part,
               checkpoints=heads | lacks)


def without_proxy() -> Kit:
    kit = world()
    return replace(kit, checkpoints={name: head for name, head in kit.checkpoints.items() if name != "ngram"})


def part(**values) -> PathSearch:
    return world().part("path-search", **values)


def searched(values: dict, depth: int = 5, text=TEXT, end=frozenset(), drafter: str = "diffusion-lm", beam: int = 3):
    """The paths that the functions of lattice.py find."""
    kit = world()
    raw = kit.part(drafter).lattice(begin(text, 20), depth, 16)
    few = lattice.narrow(raw, values.get("mass", .8), values.get("cap", 15), end)
    return few, lattice.search(few, text, kit.checkpoints["ngram"], values.get("weight", .5), beam, end)


@pytest.mark.parametrize("drafter", ["diffusion-lm", "block-diffusion"])
@pytest.mark.parametrize("values", [{}, {"mass": .5}, {"cap": 2}, {"weight": .1}, {"weight": 1.0}], ids=str)
def test_it_drafts_the_best_path_through_the_lattice_of_any_drafter(drafter, values):
    draft = part(drafter=drafter, **values)(begin(TEXT, 20), Budget(5), NO_DICE)
    few, paths = searched(values, drafter=drafter)
    assert draft.tokens == paths[0].tokens
    assert draft.parents == (-1, 0, 1, 2, 3)
    assert draft.confidence == pytest.approx([float(torch.tensor(logp).exp()) for logp in paths[0].logp])
    assert draft.source == ("path-search",) * 5
    assert draft.notes["kept"] == lattice.candidate_counts(few)


def test_a_note_counts_the_tokens_that_the_search_changed():
    chain = world().part("diffusion-lm")(begin(TEXT, 20), Budget(6), NO_DICE)
    found = part()(begin(TEXT, 20), Budget(6), NO_DICE)
    assert found.notes["changed"] == sum(a != b for a, b in zip(found.tokens, chain.tokens, strict=True)) > 0
    alone = part(weight=1.0)(begin(TEXT, 20), Budget(6), NO_DICE)
    assert alone.tokens == chain.tokens
    assert alone.notes["changed"] == 0
    assert alone.confidence == pytest.approx(chain.confidence, rel=1e-5)


@dataclass(frozen=True)
class Unsure:
    """Slots whose best tokens grow unlikely, with an end token behind each."""

    def lattice(self, session, depth: int, top: int = 16) -> Lattice:
        probs = torch.tensor([[.9, .05], *[[.02, .01]] * 5][:depth], dtype=torch.float64)
        return Lattice(torch.tensor([[4, 9], [6, 9], [8, 9], [10, 9], [12, 9], [14, 9]][:depth]), probs.log())


@pytest.mark.parametrize("values", [{"weight": 1.0}, {"proxy": None}, {"weight": 1.0, "score": "sum"}], ids=str)
def test_slots_alone_do_not_end_a_draft_before_their_best_tokens_do(values):
    part = PathSearch(Unsure(), **{"proxy": Ngram(count_ngrams(SENTENCES, 32))} | values)
    draft = part(begin(TEXT, 20, end=frozenset({9})), Budget(5), NO_DICE)
    assert draft.tokens == (4, 6, 8, 10, 12)
    assert draft.confidence == pytest.approx((.9, .02, .02, .02, .02))
    assert draft.notes["changed"] == 0


class Backwards:
    """A proxy that prefers the last candidate of every slot."""

    def logp_batch(self, contexts, tokens):
        return np.broadcast_to(np.arange(tokens.shape[-1]), tokens.shape).astype(float)


class Even:
    """Slots of four candidates that differ little."""

    def lattice(self, session, depth: int, top: int = 16) -> Lattice:
        ids = torch.arange(1, 4 * depth + 1).view(depth, 4)
        return Lattice(ids, torch.tensor([[.28, .26, .24, .22]] * depth, dtype=torch.float64).log())


def test_a_search_from_a_later_slot_keeps_the_best_token_of_those_before():
    def tokens(first, **values):
        search = PathSearch(Even(), Backwards(), 0.0, mass=1.0, first=first, **values)
        return search(begin((20,), 9), Budget(4), NO_DICE).tokens

    assert tokens(1) == (4, 8, 12, 16)
    assert tokens(2) == (1, 8, 12, 16)
    assert tokens(3) == (1, 5, 12, 16)
    assert tokens(9) == (1, 5, 9, 13)
    assert tokens(2, tree=True)[0] == 1
    with pytest.raises(Refusal, match="first must be a slot"):
        world().part("path-search", first=0)


def test_every_node_is_deterministic_at_every_temperature_and_needs_no_dice():
    for values in ({}, {"tree": True}):
        cold = part(**values)(begin(TEXT, 9), Budget(4, 3, 9), NO_DICE)
        warm = part(**values)(begin(TEXT, 9, sampling=WARM), Budget(4, 3, 9), NO_DICE)
        assert warm == cold
        assert warm.q == ()
        assert len(warm) >= 4


def test_it_costs_one_forward_and_an_empty_budget_none():
    drafter = part()
    drafter(begin(TEXT, 9), Budget(5), NO_DICE)
    assert drafter.drafter.head.forwards == 1
    assert len(drafter(begin(TEXT, 9), Budget(0), NO_DICE)) == 0
    assert drafter.drafter.head.forwards == 1


def test_without_a_trigram_the_search_uses_the_slots_alone_and_notes_it():
    alone = without_proxy().part("path-search")
    draft = alone(begin(TEXT, 20), Budget(5), NO_DICE)
    assert alone.weight == 1.0
    assert alone.proxy is None
    assert "specdec train ngram" in draft.notes["alone"]
    assert draft.tokens == part(weight=1.0)(begin(TEXT, 20), Budget(5), NO_DICE).tokens
    assert "alone" not in part()(begin(TEXT, 20), Budget(5), NO_DICE).notes
    assert "alone" not in without_proxy().part("path-search", weight=1.0)(begin(TEXT, 20), Budget(5), NO_DICE).notes


def test_a_trigram_of_another_tokenizer_is_not_used_and_the_note_gives_the_reason():
    class Shelf(dict):
        def __getitem__(self, name):
            if name == "ngram":
                raise Refusal("another tokenizer")
            return super().__getitem__(name)

    kit = world()
    alone = replace(kit, checkpoints=Shelf(kit.checkpoints)).part("path-search")
    assert alone.weight == 1.0
    assert alone.alone.endswith("(another tokenizer)")


def test_a_trigram_that_counts_other_tokens_is_not_used_and_the_note_gives_the_reason():
    alone = replace(world(), facts=replace(world().facts, vocab=33)).part("path-search")
    assert alone.weight == 1.0
    assert alone.alone.endswith("(the trigram counts 32 tokens and the target knows 33)")


def test_a_note_has_the_length_of_the_raw_draft():
    best = world().part("diffusion-lm").lattice(begin(TEXT, 20), 6).ids[:, 0].tolist()
    assert part()(begin(TEXT, 20), Budget(6), NO_DICE).notes["generated"] == 6
    end = frozenset({best[2]})
    draft = part()(begin(TEXT, 20, end=end), Budget(6), NO_DICE)
    assert draft.notes["generated"] == best.index(best[2])
    assert len(draft.notes["kept"]) == best.index(best[2]) + 1
    assert not set(draft.tokens[:-1]) & end


def test_a_path_ends_with_its_end_token():
    best = part(weight=1.0)(begin(TEXT, 20), Budget(6), NO_DICE).tokens
    draft = part(weight=1.0, mass=.01)(begin(TEXT, 20, end=frozenset({best[3]})), Budget(6), NO_DICE)
    assert draft.tokens == best[:best.index(best[3]) + 1]


def test_the_beams_are_merged_into_one_tree_with_the_best_path_first():
    _, paths = searched({}, beam=3)
    draft = part(tree=True)(begin(TEXT, 20), Budget(5, 3, 15), NO_DICE)
    want = deterministic_tree((path.tokens for path in paths), 15, "path-search")
    assert (draft.tokens, draft.parents) == (want.tokens, want.parents)
    assert 5 < len(draft) <= 15
    assert draft.keep((0, 1, 2, 3, 4)).tokens == paths[0].tokens
    probs = torch.stack([world().part("diffusion-lm").lattice(begin(TEXT, 20), 5, 99).logp.exp()])[0]
    ids = world().part("diffusion-lm").lattice(begin(TEXT, 20), 5, 99).ids
    for token, depth, confidence in zip(draft.tokens, draft.depths, draft.confidence, strict=True):
        assert confidence == pytest.approx(float(probs[depth - 1][ids[depth - 1] == token]), rel=1e-5)


def test_a_tree_stays_within_the_budgets_nodes_and_width():
    whole = part(tree=True, beam=5)(begin(TEXT, 20), Budget(5, 5, 25), NO_DICE)
    few = part(tree=True, beam=5)(begin(TEXT, 20), Budget(5, 5, 7), NO_DICE)
    assert len(few) == 7
    assert few.tokens == whole.tokens[:7]
    chain = part(tree=True, beam=5)(begin(TEXT, 20), Budget(5), NO_DICE)
    assert chain.parents == (-1, 0, 1, 2, 3)
    assert chain.tokens == whole.tokens[:5]
    narrow = part(tree=True, beam=5)(begin(TEXT, 20), Budget(5, 2, 25), NO_DICE)
    two = deterministic_tree((path.tokens for path in searched({}, beam=5)[1][:2]), 10)
    assert narrow.tokens == two.tokens
    assert len(two) < min(10, len(whole))


def test_the_stop_rule_reads_the_slots_statistics_and_the_token_that_fired_stays():
    whole = part()(begin(TEXT, 20), Budget(6), NO_DICE)
    dists = world().part("diffusion-lm").head.dists(TEXT, 6).double().exp()
    for stat, dist, confidence in zip(whole.stats, dists, whole.confidence, strict=True):
        assert (stat.first, stat.second) == pytest.approx(dist.topk(2).values.tolist(), rel=1e-4)
        assert stat.prob == confidence
        assert stat.entropy == pytest.approx(float(torch.special.entr(dist).sum()), rel=1e-4)
    least = sorted(whole.confidence)[2]
    cut = part()(begin(TEXT, 20), Budget(6, stop=BelowConfidence(least)), NO_DICE)
    assert cut.tokens == whole.tokens[:next(i for i, b in enumerate(whole.confidence, 1) if b < least)]


def test_the_entropy_of_a_slot_counts_the_mass_outside_the_lattice_as_one_token():
    class TwoCandidates:
        def lattice(self, session, depth, top=16):
            return Lattice(torch.tensor([[1, 2]] * depth), torch.tensor([[.5, .25]] * depth).log())

    stat = PathSearch(TwoCandidates())(begin((0,), 9), Budget(2), NO_DICE).stats[0]
    assert stat.entropy == pytest.approx(1.5 * torch.tensor(2.).log().item(), rel=1e-6)


def test_a_note_counts_the_text_outside_the_drafters_window():
    text = tuple(range(2, 32)) * 3
    draft = part()(begin(text, 9), Budget(4), NO_DICE)
    assert draft.notes["unseen"] == world().part("diffusion-lm").head.unseen(len(text), 4) > 0
    assert "unseen" not in part()(begin(TEXT, 9), Budget(4), NO_DICE).notes


def test_the_block_length_can_be_set():
    assert part(block=6).drafter.block == 6
    assert part(drafter="block-diffusion", block=3).drafter.head.block == 3


@pytest.mark.parametrize(("values", "words"), [
    ({"drafter": "prompt-lookup"}, "prompt-lookup"), ({"beam": 0}, "got 0, 15"), ({"cap": 0}, "got 3, 0,"),
    ({"mass": 0}, "got 3, 15, 0,"), ({"weight": 2}, "got 3, 15, 0.8, 2 "), ({"score": "best"}, "'best'")])
def test_an_impossible_parameter_is_refused(values, words):
    with pytest.raises(Refusal, match=words):
        part(**values)


def test_it_drafts_after_any_prompt():
    small = network_kit().part("path-search")
    assert len(small(begin((1,), 9), Budget(3), NO_DICE)) == len(small(begin(PROMPT, 9), Budget(3), NO_DICE)) == 3
