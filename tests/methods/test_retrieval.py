"""The four retrieval methods, assembled, on a target with a scripted text."""

import pytest

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.loop import decode
from specdec_lib.types import NO_DICE
from tests.worlds import Scripted

NAMES = ["prompt-lookup", "sam", "token-recycling", "sam+token-recycling"]
PROMPT = (1, 2, 3, 4, 5, 6, 7, 8, 9)
COPYING = (1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9)
CYCLE = (20, 21) * 8


def sessions(name, script, nodes=4, prompt=PROMPT):
    target = Scripted(prompt, script)
    method = catalog.build(name, Kit(target, nodes=nodes, parts=catalog.make_part))
    return list(decode(prompt, target, *method, max_new_tokens=len(script), dice=NO_DICE))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("script", [COPYING, CYCLE, (10, 11, 12, 13, 14, 15)], ids=["copy", "cycle", "new"])
def test_the_output_is_plain_decodings(name, script):
    assert sessions(name, script)[-1].output == script


@pytest.mark.parametrize("name", NAMES)
def test_a_copied_text_advances_by_the_node_budget_plus_one_per_round(name):
    last = sessions(name, COPYING)[-1]
    assert len(last.rounds) == 1 + -(-(len(COPYING) - 1) // 5)                  # the first round emits one token
    assert max(len(round.draft) for round in last.rounds) <= 4


def test_a_long_match_is_copied_and_otherwise_a_tree_is_drafted():
    last = sessions("sam+token-recycling(threshold=5)", (30, *PROMPT))[-1]
    assert last.rounds[0].budget.source == "token-recycling"                    # the prompt repeats nothing
    assert last.rounds[-1].budget.source == "suffix-automaton"                # five tokens occur earlier


def test_methods_that_learn_from_rejected_nodes_are_marked_off_path():
    cards = catalog.methods()
    assert [cards[name].off_path for name in NAMES] == [False, False, True, True]
