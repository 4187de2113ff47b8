"""The search at one position and over an answer: same paths as the drafter's, cut where a controller cuts."""

import pytest

from specdec_lib import lattice
from specdec_lib.analysis import lattice_search
from specdec_lib.analysis.diffuspec_ablation import PAPER
from specdec_lib.analysis.lattice_search import CONTROLLERS, FULL, LatticeReplay
from specdec_lib.models.replay import SHIPPED, load_recording
from specdec_lib.specs import parse_part
from specdec_lib.when.adaptive_length import AdaptiveLength

SHORTEST = "multi_turn"


@pytest.fixture(scope="module")
def blocks():
    return LatticeReplay(load_recording(SHIPPED / f"{SHORTEST}.safetensors"), "diffusion-lm", None, 8)


def test_at_a_position_the_paths_are_those_of_the_recorded_lattice(blocks):
    found = blocks.at(5, weight=1.0, beam=3, mass=0.8, cap=4, score="accepted")
    assert found.came == blocks.recording.output[5:13]
    assert len(found.raw.ids) == 8
    assert max(found.kept) <= 4
    assert found.best == lattice.best_chain(found.raw, blocks.recording.end)
    assert found.searched == found.best                # without a trigram the slots decide alone
    assert found.accepted[1] <= len(found.came)


def test_a_smaller_mass_leaves_fewer_candidates_and_a_depth_fewer_slots(blocks):
    few, many = blocks.at(5, mass=0.3), blocks.at(5, mass=0.95)
    assert sum(few.kept) < sum(many.kept)
    assert len(blocks.at(5, 3).raw.ids) == 3


def test_a_controller_gives_the_length_of_the_round_that_writes_the_token(blocks):
    assert blocks.length_at(7, FULL) == 8
    session = blocks.session(CONTROLLERS["corrected"])
    written = [one.budget.depth for one in session.rounds for _ in one.verdict.tokens]
    assert [blocks.length_at(place, "corrected") for place in range(len(written))] == written
    with pytest.raises(ValueError, match="there is no token"):
        blocks.length_at(len(written), "corrected")


def test_the_place_shown_first_is_one_where_the_parameters_move_the_path(blocks):
    def moved(place, name, values):
        return len({blocks.at(place, **{name: value}).searched for value in values}) > 1

    knobs = {"mass": (0.3, 0.95), "cap": (1, 15)}
    place = blocks.most_movable(knobs)
    most = max(sum(moved(at, *knob) for knob in knobs.items()) for at in range(len(blocks.recording.output) - 8))
    assert sum(moved(place, *knob) for knob in knobs.items()) == most


def test_no_place_is_shown_first_whose_block_would_reach_beyond_the_answer(blocks):
    class Later(LatticeReplay):
        def at(self, place, depth=None, **search):
            return lattice_search.SearchedLattice(None, (), (), (1,) * place, (1,) * place)

    assert Later(blocks.recording, "diffusion-lm", None, 8).most_movable({}) == len(blocks.recording.output) - 9


def test_every_rule_writes_the_answer_and_a_decode_is_kept(blocks):
    for when in (None, *CONTROLLERS.values()):
        assert blocks.session(when).tokens == blocks.recording.tokens
    assert blocks.session(AdaptiveLength()) is blocks.session(AdaptiveLength())
    assert blocks.session(AdaptiveLength(), beam=1) is not blocks.session(AdaptiveLength())


def test_the_last_controller_is_the_papers():
    given = {name: value for name, value in parse_part(PAPER).values.items() if name != "score"}
    assert [*CONTROLLERS.values()][-1] == AdaptiveLength(**given)


def test_the_lengths_of_two_rules_round_by_round(blocks):
    rules = {name: blocks.session(CONTROLLERS[name]) for name in ("printed", "corrected")}
    asked, accepted = lattice_search.lengths_by_rule(rules)
    assert asked["printed"][0] == AdaptiveLength().longest
    assert {name: len(values) for name, values in asked.items()} == {
        name: len(session.rounds) for name, session in rules.items()}
    assert sum(accepted["corrected"]) + len(accepted["corrected"]) >= len(blocks.recording.output)
