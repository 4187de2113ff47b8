"""A tree that compiled code grows in one call is that of `grow_candidates`, number by number."""

import random
import re

import pytest
import torch

from specdec_lib.heads.eagle import EagleHead
from specdec_lib.heads.eagle_rows import SOURCE, WIDEST
from specdec_lib.heads.eagle_tree import Growth
from specdec_lib.heads.text_counts import LONGEST, PLACES, TextCounts
from specdec_lib.loop import begin
from specdec_lib.models.llama.path_attention import has_vectors
from specdec_lib.models.llama.row_stats import TOP
from specdec_lib.trees import UnlikelyPath
from specdec_lib.types import NO_DICE, Budget, Draft
from specdec_lib.what.eagle2 import Eagle2, grow_candidates
from tests.heads.test_eagle_rows import SHAPE, TAPS, TREE, Failing, head_of, kept, same, target_of, words
from tests.models.llama.test_compiled_layers import KINDS
from tests.worlds import random_eagle

pytestmark = pytest.mark.skipif(not has_vectors(), reason="the C code has no vectors for this processor")
BUDGETS = (Budget(1, 1), Budget(5, 1), Budget(1, 8, 3), Budget(3, 4, 12), Budget(5, 4, 12), Budget(6, 8, 40),
           Budget(4, 2, 1), Budget(4, 3, 2), Budget(8, 2, stop=UnlikelyPath(0.001)),
           Budget(4, 4, stop=UnlikelyPath(0.04)))


def grown(head, tokens, budget, end, sharpness=1.0, *counts_and_worth):
    least = budget.stop.least if budget.stop else 0.0
    return head.tree(tokens, Growth(budget.depth, budget.width, budget.size, least, frozenset(end), sharpness,
                                    *counts_and_worth))


@pytest.mark.parametrize("kind", KINDS)
def test_candidates_rows_and_counts_are_those_of_a_tree_grown_in_python(kind):
    target, dice, sizes = target_of(kind), random.Random(7), set()
    one, other = (head_of(target, compiled) for compiled in (True, False))
    text = words(12)
    for _ in range(6):
        for budget in BUDGETS:
            end, sharpness = frozenset(dice.sample(range(97), dice.choice((0, 2, 30)))), dice.choice((1.0, 0.7, 1.18))
            mine = grown(one, text, budget, end, sharpness)
            assert list(mine) == grow_candidates(end, budget, lambda fed, text=text: other(text, fed), sharpness)
            assert (one.forwards, one.fed) == (other.forwards, other.fed)
            assert one.cache.rows.draft == Draft(other.cache.rows.draft.tokens, other.cache.rows.draft.parents)
            assert all(map(torch.equal, kept(one), kept(other)))
            sizes.add(len(one.cache.rows) - len(text) + 1)
            text += tuple(words(dice.randrange(1, 4), dice.randrange(99)))
            target.prefill(text[:-1])
    assert len(sizes) > 5                          # trees of many shapes


def test_a_tree_wider_than_the_statistics_of_rows_is_that_of_python_too():
    target, dice = target_of("fp32"), random.Random(5)           # in bfloat16 logits tie, and torch orders ties anyhow
    one, other = (head_of(target, compiled) for compiled in (True, False))
    text = words(12)
    for budget in (Budget(4, TOP + 1, 20), Budget(4, 13, 32), Budget(3, WIDEST, 80), Budget(2, WIDEST, 200)):
        end, sharpness = frozenset(dice.sample(range(97), 3)), dice.choice((1.0, 1.18))
        mine = grown(one, text, budget, end, sharpness)
        want = grow_candidates(end, budget, lambda fed, text=text: other(text, fed), sharpness)
        assert [(node.token, node.parent) for node in mine] == [(node.token, node.parent) for node in want]
        for node, same_one in zip(mine, want, strict=True):
            assert (node.score, *node.stat) == pytest.approx((same_one.score, *same_one.stat), abs=1e-5)
        assert one.cache.rows.draft == Draft(other.cache.rows.draft.tokens, other.cache.rows.draft.parents)
        text += tuple(words(2, dice.randrange(99)))
        target.prefill(text[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_counts_of_the_text_and_what_a_row_must_be_worth_are_taken_as_in_python(kind):
    target, dice, fewer, other_best = target_of(kind), random.Random(9), 0, 0
    one, other = (head_of(target, compiled) for compiled in (True, False))
    text, counts = tuple(word % 7 for word in words(40)), TextCounts(9.0)
    for asked in range(24):
        budget, end = BUDGETS[asked % len(BUDGETS)], frozenset(dice.sample(range(97), 2))
        sharpness, worth = dice.choice((1.0, 1.1)), tuple(dice.choices((0.0, 0.1, 0.3), k=dice.randrange(4)))
        counts.read(text)
        mine = grown(one, text, budget, end, sharpness, counts, worth)
        want = [grow_candidates(end, budget, lambda fed, text=text: other(text, fed), sharpness, counts, worth)]
        assert list(mine) == want[0]
        assert (one.forwards, one.fed) == (other.forwards, other.fed)
        for without in ((None, worth), (counts, ())):
            want.append(grow_candidates(end, budget, lambda fed, text=text: other(text, fed), sharpness, *without))
        one.forwards, one.fed = other.forwards, other.fed
        other_best, fewer = other_best + (want[0][0].token != want[1][0].token), fewer + (len(want[0]) < len(want[2]))
        text += tuple(dice.randrange(7) for _ in range(dice.randrange(1, 4)))
        target.prefill(text[:-1])
    assert other_best > 3
    assert fewer > 3


def test_numbers_in_the_c_code_are_those_in_python():
    headers = "".join((SOURCE.parent / name).read_text() for name in ("eagle_tree.h", "text_counts.h"))
    told = dict(re.findall(r"(\w+) = (\d+)[,\s}]", " ".join(re.findall(r"enum \{(.*?\})", headers))))
    assert {name: int(value) for name, value in told.items()} == {"MOST": WIDEST, "LONGEST": LONGEST, "PLACES": PLACES}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_the_tree_serve_the_next_draft(kind):
    target, text = target_of(kind), words(20)
    one, other = (head_of(target, compiled) for compiled in (True, False))
    grown(one, text, Budget(3, 3, 9), ())
    draft, fed = one.cache.rows.draft, one.fed
    assert len(draft) > 2
    assert same(one(text, draft), other(text, draft))
    assert one.fed == fed                          # nothing was computed twice
    assert same(one(text, TREE), other(text, TREE))


def test_a_cache_without_room_grows_with_the_tree():
    target = target_of("bf16")
    one, other = (head_of(target, compiled) for compiled in (True, False))
    text, budget = words(508), Budget(6, 4, 24)
    assert list(grown(one, text, budget, ())) == grow_candidates(frozenset(), budget, lambda fed: other(text, fed))
    assert one.cache.capacity == 1024


def test_eagle2_takes_the_compiled_tree_where_it_can(monkeypatch):
    head, asked = head_of(target_of("bf16"), True), []
    tree = head.tree
    monkeypatch.setattr(head, "tree", lambda tokens, growth: asked.append(growth) or tree(tokens, growth))
    for budget in (Budget(3, 4, 12), Budget(3, 4, 12, UnlikelyPath(0.01)), Budget(3, WIDEST + 1, 12),
                   Budget(3, 4, 12, lambda trail: False)):
        session = begin(words(20), 30)
        draft = Eagle2(head)(session, budget, NO_DICE)
        python = Eagle2(head_of(head.target, False))(session, budget, NO_DICE)
        assert draft == python
    assert asked == [Growth(3, 4, 12, least, frozenset(), worth=(0.0,)) for least in (0.0, 0.01)]


def test_a_head_without_compiled_code_and_a_tree_too_wide_are_refused():
    head = head_of(target_of("bf16"), False)
    with pytest.raises(ValueError, match="grows no tree"):
        grown(head, words(20), Budget(2, 2), ())
    with pytest.raises(ValueError, match="grows no tree"):
        grown(head_of(target_of("bf16"), True), words(20), Budget(2, WIDEST + 1), ())


def test_missing_memory_is_an_error():
    head = head_of(target_of("bf16"), True)
    head.compiled.code = Failing(head.compiled.code, "run_tree")
    with pytest.raises(MemoryError, match="no memory"):
        grown(head, words(20), Budget(3, 4), ())


def test_a_tree_counts_the_columns_of_its_own_text_and_not_of_an_earlier_one():
    target, few = target_of("bf16"), random_eagle(SHAPE, TAPS, (1, 2, 3)).state
    head = EagleHead(few, TAPS, target, text_tokens=True)
    for text in ((1, 2, 10, 11, 12, 13, 14, 15, 16), (1, 2), (1, 2, 20, 21)):
        fresh = EagleHead(few, TAPS, target, text_tokens=True)
        session = begin(text, 30)
        one, other = (Eagle2(each, sharpness=1.1)(session, Budget(3, 2, 6), NO_DICE) for each in (head, fresh))
        assert one == other
