"""Several chains are drawn through the slots of one diffusion draft."""

from collections import Counter
from dataclasses import dataclass

import pytest
import torch

from specdec_lib.dice import Dice
from specdec_lib.how.match import Match
from specdec_lib.how.self_selection import SelfSelection
from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Lattice, Refusal
from specdec_lib.what.sampled_chains import SampledChains, slots_of
from tests.what.test_diffusion_lm import TEXT, world
from tests.worlds import PROMPT, WARM, Scripted, network_kit

PROBS = torch.tensor([[.6, .3, .1], [.5, .25, .25], [.7, .2, .1]], dtype=torch.float64)
IDS = torch.tensor([[7, 8, 9], [4, 5, 6], [1, 2, 3]])


@dataclass(frozen=True)
class Slots:
    """Three slots with the same distributions after any text."""

    def lattice(self, session, depth, top):
        return Lattice(IDS[:depth, :top], PROBS[:depth, :top].log())


def leaves(draft):
    ends = [node for node in range(len(draft)) if node not in draft.children]
    return [tuple(draft.tokens[i] for i in draft.path(node)) for node in ends]


@pytest.mark.parametrize("sampling", [WARM, None], ids=["sampling", "greedy"])
def test_one_chain_equals_the_plain_drafters_at_every_temperature(sampling):
    part, plain = world().part("sampled-chains", temperature=2.0), world().part("diffusion-lm")
    session = begin(TEXT, 9, sampling=sampling)
    one, other = part(session, Budget(4), NO_DICE), plain(session, Budget(4), NO_DICE)
    assert (one.tokens, one.parents, one.q) == (other.tokens, other.parents, ())
    assert one.confidence == pytest.approx(other.confidence, rel=1e-5)


def test_chains_are_drawn_independently_from_each_slots_distribution_at_the_drafts_temperature():
    part, dists = SampledChains(Slots(), temperature=2.0), PROBS.sqrt() / PROBS.sqrt().sum(-1, keepdim=True)
    drawn = [chain for n in range(1500)
             for chain in part.chains(begin((0,), 9, id=str(n)), slots_of(Slots().lattice(None, 2, 3)), 3)[1:]]
    counts = Counter(drawn)
    for a, x in zip(IDS[0].tolist(), dists[0].tolist(), strict=True):
        for b, y in zip(IDS[1].tolist(), dists[1].tolist(), strict=True):
            both = sum(count for chain, count in counts.items() if chain[:2] == (a, b)) / len(drawn)
            assert both == pytest.approx(x * y, abs=0.02)


def test_with_best_false_the_first_chain_is_drawn_too():
    part = SampledChains(Slots(), best=False)
    firsts = {part(begin((0,), 9, id=str(seed)), Budget(1), NO_DICE).tokens for seed in range(50)}
    assert firsts == {(7,), (8,), (9,)}


def test_more_chains_extend_the_trie_of_fewer_and_equal_beginnings_are_merged():
    part, session = SampledChains(Slots()), begin(TEXT, 9)
    few, many = (part(session, Budget(3, width, 99), NO_DICE) for width in (3, 8))
    assert many.tokens[:len(few)] == few.tokens
    assert len(leaves(few)) <= 3 < len(many)
    assert len(set(leaves(many))) == len(leaves(many))
    assert len(many) < 8 * 3


def test_the_budgets_nodes_go_to_the_chains_in_order():
    part, session = SampledChains(Slots(), temperature=5.0), begin(TEXT, 9)
    whole = part(session, Budget(3, 8, 99), NO_DICE)
    assert len(whole) > 5
    for nodes in (2, 3, 5):
        assert part(session, Budget(3, 8, nodes), NO_DICE) == whole.keep(tuple(range(nodes)))


def test_chains_depend_on_seed_and_session_and_not_on_the_loops_dice():
    part = SampledChains(Slots(), temperature=5.0)
    drafts = [part(begin(TEXT, 9, sampling=WARM), Budget(3, 4), dice) for dice in (NO_DICE, Dice(1), Dice(2))]
    assert drafts[0] == drafts[1] == drafts[2]
    assert len({part(begin(TEXT[:n], 9), Budget(3, 4), NO_DICE).tokens for n in range(1, 7)}) > 1
    assert len({SampledChains(Slots(), seed=seed)(begin(TEXT, 9), Budget(3, 4), NO_DICE).tokens
                for seed in range(6)}) > 1


def test_a_chain_ends_with_its_first_end_token():
    draft = SampledChains(Slots(), temperature=5.0)(begin(TEXT, 9, end=frozenset({4, 8})), Budget(3, 8, 99), NO_DICE)
    assert (7, 4) in leaves(draft)
    assert (8,) in leaves(draft)
    assert not any(parent >= 0 and draft.tokens[parent] in (4, 8) for parent in draft.parents)


def test_the_stop_rule_reads_the_first_chain_and_cuts_all_chains():
    trails = []
    stop = lambda trail: trails.append(trail) or len(trail) == 2     # noqa: E731
    draft = SampledChains(Slots(), temperature=5.0)(begin(TEXT, 9), Budget(3, 4, stop=stop), NO_DICE)
    assert draft.depth == 2
    assert len(leaves(draft)) > 1
    assert [len(trail) for trail in trails] == [1, 2]
    stat, dist = trails[1][0], PROBS[0]
    assert (stat.prob, stat.first, stat.second) == pytest.approx((.6, .6, .3))
    assert stat.entropy == pytest.approx(float(torch.special.entr(dist).sum()))


def test_the_entropy_counts_the_mass_outside_the_candidates_as_one_token():
    draft = SampledChains(Slots(), top=2)(begin(TEXT, 9), Budget(1), NO_DICE)
    assert draft.stats[0].entropy == pytest.approx(float(torch.special.entr(PROBS[0]).sum()))


def test_it_costs_the_drafter_one_forward_for_any_number_of_chains():
    part = world().part("sampled-chains")
    part(begin(TEXT, 9), Budget(4, 8, 99), NO_DICE)
    assert part.drafter.head.forwards == 1


def test_chains_of_a_block_drafter_are_at_most_as_long_as_its_block():
    part = network_kit().part("sampled-chains", drafter="block-diffusion")
    part.drafter.head.target.prefill(PROMPT[:-1])
    assert part(begin(PROMPT, 20), Budget(9, 3, 99), NO_DICE).depth == part.drafter.head.block


def test_a_note_counts_the_text_outside_the_window():
    part = world().part("sampled-chains", settings={"window": 10})
    assert part(begin(tuple(range(20)), 9), Budget(4, 2), NO_DICE).notes == {"unseen": 15}


def test_more_chains_raise_the_accepted_length_and_greedy_self_selection_equals_match():
    text, part, kept = (8, 5, 1), SampledChains(Slots(), temperature=2.0), []
    for width in (1, 4, 16):
        found = []
        for seed in range(200):
            session = begin((0,), 9, id=str(seed))
            draft = part(session, Budget(3, width, 99), NO_DICE)
            one, other = (how(session, draft, Scripted((0,), text)((0,), draft), NO_DICE)
                          for how in (SelfSelection(), Match()))
            assert one == other
            found.append(len(one.path))
        kept.append(sum(found) / len(found))
    assert kept[0] == 0
    assert kept[0] < kept[1] < kept[2]


@pytest.mark.parametrize(("values", "words"), [
    ({"temperature": -1}, "got -1 and 64"), ({"top": 0}, "got 1.0 and 0"),
    ({"drafter": "prompt-lookup"}, "prompt-lookup")])
def test_an_impossible_parameter_is_refused(values, words):
    with pytest.raises(Refusal, match=words):
        world().part("sampled-chains", **values)


def test_at_the_drafts_temperature_0_all_chains_are_the_best_one():
    assert SampledChains(Slots(), 0.0, best=False)(begin((0,), 9), Budget(3, 4), NO_DICE).tokens == (7, 4, 1)
