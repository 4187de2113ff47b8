import pytest

from specdec_lib.cards import Kit
from specdec_lib.index.matcher import Matcher
from specdec_lib.index.static_store import StaticStore
from specdec_lib.index.store_build import build_store
from specdec_lib.trees import stop_when_unlikely
from specdec_lib.types import NO_DICE, Budget, Refusal, Session
from specdec_lib.when.match_length import CARD, MatchLength

COPY, OTHER = Budget.of("suffix-automaton", 8), Budget.of("token-recycling", 8, 8, 8)
WORDS = (11, 12, 13, 14, 15, 16)


def choice(tokens, store=None, threshold=5):
    part = MatchLength(Matcher(store), COPY, OTHER, threshold)
    return part(Session(tuple(tokens), len(tokens), 50), NO_DICE).source


def repeat(n):
    """A text whose last `n` tokens occur earlier."""
    return (*WORDS[:n], 99, 98, *WORDS[:n])


def test_a_match_of_five_tokens_is_copied_and_one_of_four_is_not():
    assert choice(repeat(5)) == "suffix-automaton"
    assert choice(repeat(4)) == "token-recycling"
    assert choice(repeat(2), threshold=2) == "suffix-automaton"


def test_the_copy_budget_carries_the_other_drafters_budget():
    part = MatchLength(Matcher(), COPY, OTHER, 5)
    assert part(Session(repeat(5), 12, 50), NO_DICE) == COPY.then(OTHER)
    assert part(Session(repeat(4), 10, 50), NO_DICE) == OTHER


def test_a_match_in_the_corpus_must_be_five_tokens_longer(tmp_path):
    build_store(tmp_path / "store", [range(100, 130)])
    store = StaticStore(tmp_path / "store")
    assert choice((1, *range(105, 114)), store) == "token-recycling"            # nine tokens
    assert choice((1, *range(104, 114)), store) == "suffix-automaton"           # ten


def test_both_budgets_come_from_the_kit():
    part = CARD.make(Kit(None, nodes=6))
    assert part.copy == Budget.of("suffix-automaton", 6)
    assert part.other == Budget.of("token-recycling", 6, 8, 6)
    assert part.threshold == 5


def test_parameters_override_the_kit():
    part = CARD.make(Kit(None, nodes=6), threshold=3, other="eagle", depth=4, width=2, nodes=5)
    assert part.copy == Budget.of("suffix-automaton", 4)
    assert part.other == Budget.of("eagle", 4, 2, 5)


def test_the_copy_has_its_own_length_and_the_tree_its_own_stop_rule():
    part = CARD.make(Kit(None, nodes=6), copy=12, least=0.4)
    assert part.copy == Budget.of("suffix-automaton", 12)
    assert part.other == stop_when_unlikely(Budget.of("token-recycling", 6, 8, 6), 0.4)


def test_it_shares_its_index_with_the_drafter():
    kit = Kit(None)
    part = CARD.make(kit)
    assert part.matcher is kit.indexes["matcher"]


def test_a_threshold_below_one_is_refused():
    with pytest.raises(Refusal, match="threshold"):
        CARD.make(Kit(None), threshold=0)
