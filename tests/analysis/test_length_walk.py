"""Walks along a small text, and the quickest lengths against every way to write it."""

import itertools
import random

from specdec_lib.analysis.length_replay import walk_lengths
from specdec_lib.analysis.trigger_oracle import round_offers
from specdec_lib.cost.lengths import quickest_lengths
from specdec_lib.trees import deterministic_chain


def world(seed: int, places: int = 6, longest: int = 3):
    """Offers at every length of drafts that are right as far as a coin says."""
    dice = random.Random(seed)
    text = list(range(places))
    right = [dice.randrange(4) for _ in range(places)]
    cost = [1.0] + [1 + dice.random() for _ in range(longest)]

    def draft(place, n):
        return deterministic_chain([(place + i if i < right[place] else 99) for i in range(n)])

    return [round_offers([draft(place, n) for place in range(places)], text, lambda width: cost[width - 1])
            for n in range(longest + 1)]


def spent(table, lengths) -> float:
    return sum(offer.ms for offer in walk_lengths(table, lengths))


def test_a_walk_takes_its_rounds_where_the_last_one_ended():
    table = world(0)
    place = 0
    for offer in walk_lengths(table, [2] * 6):
        assert offer == table[min(2, 5 - place)][place]
        place += offer.tokens
    assert place == 6
    assert sum(offer.tokens
                              for offer in walk_lengths(table, [0] * 6)) == len(walk_lengths(table, [0] * 6)) == 6
    assert walk_lengths(table, [9] * 6) == walk_lengths(table, [3] * 6), "no longer than what was offered"


def test_no_choice_of_lengths_is_quicker():
    for seed in range(5):
        table = world(seed)
        room = [range(min(len(table), 6 - place)) for place in range(6)]
        assert abs(spent(table, quickest_lengths(table)) - min(spent(table, way)
                                                               for way in itertools.product(*room))) < 1e-12


def test_it_gives_up_tokens_now_for_a_better_draft_behind():
    text = list(range(7))
    good = {(0, 1): (0,), (0, 2): (0, 1), (2, 4): (2, 3, 4, 5)}             # two tokens further on nobody knows a word
    table = [round_offers([deterministic_chain(good.get((place, n), (99,) * n)) for place in range(7)], text,
                          lambda width: 1.0)
             for n in range(5)]
    assert table[2][0].rate > table[1][0].rate
    assert quickest_lengths(table)[0] == 1
    assert quickest_lengths(table)[2] == 4


def test_of_equal_lengths_it_takes_the_shorter_and_leaves_a_token_to_the_verdict():
    text = [0, 1, 2]
    table = [round_offers([deterministic_chain(text[place:place + n]) for place in range(3)], text, lambda width: 1.0)
             for n in range(4)]
    assert quickest_lengths(table) == (2, 1, 0)
