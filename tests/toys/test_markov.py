"""A world that is known exactly: its lattices are worked out, its tapes replay."""

from itertools import product

import torch

from specdec_lib.loop import decode
from specdec_lib.models.replay import Replay
from specdec_lib.toys.markov import MarkovWorld, markov_recordings, record_markov
from specdec_lib.types import Budget, Method
from specdec_lib.what.path_search import PathSearch
from specdec_lib.what.recorded import Recorded
from tests.worlds import kit

SMALL = MarkovWorld.random(vocab=4, seed=1)


def test_every_law_sums_to_one_and_says_never_of_nothing():
    assert torch.allclose(SMALL.dists.sum(-1), torch.ones(4, 4, dtype=torch.float64))
    assert bool((SMALL.dists > 0).all())


def test_a_slot_has_the_chance_of_its_token_over_all_that_may_stand_before_it():
    lattice, target = SMALL.lattice((3, 1, 2), 3, top=4), SMALL.target()
    want = torch.zeros(3, 4, dtype=torch.float64)
    for path in product(range(4), repeat=3):
        prob = 1.0
        for i, token in enumerate(path):
            prob *= float(target.logits((3, 1, 2, *path[:i])).exp()[token])
        for i, token in enumerate(path):
            want[i, token] += prob
    assert torch.allclose(lattice.logp.exp(), want.gather(1, lattice.ids))
    assert bool((lattice.logp.diff(dim=1) <= 0).all())


def test_a_tape_holds_the_greedy_answer_and_replays_it_under_a_search():
    made = record_markov(SMALL, (0, 1, 3), 20, 4)
    assert all(int(SMALL.target().logits(made.tokens[:n]).argmax()) == made.tokens[n] for n in range(3, 23))
    assert made.lattice("diffusion-lm", 5, 2).ids.tolist() == SMALL.lattice(made.tokens[:5], 2).ids.tolist()
    method = Method(lambda session, dice: Budget(4), PathSearch(Recorded(made, "diffusion-lm")), kit().part("match"))
    *_, last = decode(made.tokens[:3], Replay(made), *method, max_new_tokens=20)
    assert last.tokens == made.tokens
    assert len(last.rounds) < 20


def test_the_trigram_has_read_the_world_that_it_judges():
    recordings, proxy = markov_recordings(answers=2, tokens=12, depth=3)
    other, _ = markov_recordings(answers=2, tokens=12, depth=3, seed=1)
    def told(found):
        rows = [proxy.logp(one.tokens[:n], [one.tokens[n]])[0] for one in found.values() for n in range(6, 18)]
        return sum(rows) / len(rows)
    assert told(recordings) > told(other) + 1
    assert [one.prompt for one in recordings.values()] == [6, 6]
    assert markov_recordings(2, 12, 3)[0]["known 1"].tokens == recordings["known 1"].tokens
