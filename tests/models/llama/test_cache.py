"""The cache records what its rows hold: after any call the kept rows are right, and no wrong row is kept."""

import random

import pytest
import torch

from specdec_lib.models.llama.attention import hidden_block, visible, widened_mask
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cache_rows import CacheRows, accepted_path, common, common_nodes
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import ROOT, Draft

SHAPE = LlamaConfig(2, 8, 2, 1, 4, 8, 97, 64)


def spelled(tokens, draft):
    """For every flat row the tokens that lead to it: what a row's keys and values depend on."""
    return [tokens[:i + 1] for i in range(len(tokens))] + [
        tokens + tuple(draft.tokens[j] for j in draft.path(node)) for node in range(len(draft))]


def feed(rows, tokens, draft):
    rows.align(tokens, draft)
    fed = len(tokens) + len(draft) - len(rows)
    rows.depth += [1] * fed
    return fed


@pytest.mark.parametrize("seed", range(5))
def test_every_kept_row_was_computed_behind_the_very_tokens_that_lead_to_it(rounds, seed):
    books, memory = CacheRows(), {}
    for tokens, draft in rounds(seed, rounds=80, back=0.2):
        first, sources = books.align(tokens, draft)
        memory |= {first + i: row for i, row in enumerate([memory[source] for source in sources])}
        want = spelled(tokens, draft)
        assert [memory[row] for row in range(len(books))] == want[:len(books)]
        memory = dict(enumerate(want))
        books.depth += [1] * (len(want) - len(books))


def test_rows_of_a_chain_lie_in_place_already():
    books = CacheRows()
    feed(books, (1, 2), deterministic_chain((3, 4, 5)))
    assert books.align((1, 2, 3, 4, 9), Draft()) == (4, [])
    assert len(books) == 4


def test_rows_of_a_branch_move_behind_the_context():
    books = CacheRows()
    feed(books, (1, 2), Draft((3, 4, 5), (ROOT, ROOT, 1)))
    assert books.align((1, 2, 4, 5, 9), Draft()) == (2, [3, 4])


def test_a_shorter_context_keeps_the_common_prefix_alone():
    books = CacheRows()
    feed(books, (1, 2, 3, 4), deterministic_chain((5,)))
    books.align((1, 2, 9), Draft())
    assert len(books) == 2


def test_a_draft_that_continues_the_last_one_keeps_its_nodes_and_one_that_differs_its_common_ones():
    books = CacheRows()
    assert feed(books, (1,), deterministic_chain((3, 4))) == 3
    assert feed(books, (1,), deterministic_chain((3, 4, 5))) == 1
    assert feed(books, (1,), Draft((3, 4, 6), (ROOT, 0, 0))) == 1


def test_rows_of_an_early_exit_are_found_and_lie_behind_deeper_ones():
    books = CacheRows()
    books.align((1, 2, 3), deterministic_chain((4,)))
    books.depth = [3, 3, 1, 1]
    assert books.shallow(1) == 4
    assert books.shallow(2) == 2
    assert books.fed((1, 2, 3), 2) == 2
    assert books.fed((1, 2, 3), 1) == 3


def test_the_common_prefix_equals_a_comparison_token_by_token():
    dice = random.Random(0)
    for _ in range(300):
        a, b = (tuple(dice.randrange(2) for _ in range(dice.randrange(12))) for _ in range(2))
        want = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        assert common(a, b) == want


def test_nodes_are_common_only_with_their_parents():
    assert common_nodes(Draft((1, 2, 3), (ROOT, 0, 1)), Draft((1, 2, 3), (ROOT, 0, 0))) == 2


def test_an_accepted_path_ends_where_a_node_was_never_computed():
    assert accepted_path(deterministic_chain((1, 2, 3)), 2, (1, 2, 3)) == [0, 1]
    assert accepted_path(deterministic_chain((1, 2, 3)), 0, (1,)) == []


def test_moved_rows_keep_keys_hidden_states_and_taps():
    cache = KVCache(SHAPE, 2, torch.float32, "cpu", taps=(1,))
    cache.reserve(5, half_way=True)
    number = torch.arange(cache.capacity).float()
    cache.kv[:] = number[:, None]
    cache.hidden[:] = number[:, None]
    cache.features[:] = number[:, None, None]
    feed(cache.rows, (1, 2), Draft((3, 4, 5), (ROOT, ROOT, 1)))
    cache.align((1, 2, 4, 5), Draft())
    want = torch.tensor([0.0, 1.0, 3.0, 4.0])
    assert torch.equal(cache.kv[1, 1, 0, :4, 2], want)
    assert torch.equal(cache.hidden[:4, 0], want)
    assert torch.equal(cache.features[:4, 0, 0], want)


def test_growing_doubles_the_capacity_and_keeps_the_rows():
    cache = KVCache(SHAPE, 2, torch.float32, "cpu", taps=(1,), capacity=4)
    cache.kv[:], cache.features[:] = 7.0, 7.0
    cache.reserve(9)
    assert cache.capacity == 16
    assert cache.features.shape[0] == 16
    assert bool((cache.kv[:, :, :, :4] == 7).all())
    assert not cache.kv[:, :, :, 4:].any()
    cache.tap(())
    cache.tap((1,))
    assert cache.features.shape[0] == 16           # not what was kept before it grew


def test_choosing_other_taps_drops_all_rows():
    cache = KVCache(SHAPE, 2, torch.float32, "cpu")
    feed(cache.rows, (1, 2), Draft())
    cache.tap((2,))
    assert len(cache.rows) == 0
    assert cache.features.shape == (512, 1, 8)


def test_logits_that_were_returned_are_never_overwritten():
    answers, row = LogitsCache(), torch.ones(1, 4)
    answers.keep((1,), Draft(), 0, row)
    handed = [(answers.rows(Draft()), 1)]
    for size in range(1, 20):
        draft = deterministic_chain(range(size))
        assert answers.known((1,), draft) == size
        answers.keep((1,), draft, size, row * (size + 1))
        handed.append((answers.rows(draft), size + 1))
    answers.keep((1,), deterministic_chain((0, 1, 50)), 3, row * 99)
    for rows, count in handed:
        assert rows[:, 0].tolist() == [float(i + 1) for i in range(count)]


def test_a_node_sees_the_context_its_ancestors_and_itself():
    seen = visible((ROOT, ROOT, 1, 0), committed=2)
    assert seen.int().tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0],
                                   [1, 1, 0, 1, 1, 0], [1, 1, 1, 0, 0, 1]]


def test_no_mask_is_made_where_everything_is_seen():
    float32, cpu = torch.float32, torch.device("cpu")
    assert hidden_block((), 1, 1, False, float32, cpu) is None
    assert hidden_block((ROOT, 0), 0, 1, False, float32, cpu) is None
    assert hidden_block((ROOT, 0), 0, 2, True, float32, cpu) is None
    assert hidden_block((ROOT, ROOT), 0, 1, False, float32, cpu).tolist() == [[float("-inf"), 0.0]]


def test_a_block_widens_to_the_left_with_columns_that_all_rows_see():
    assert widened_mask(torch.tensor([[0.0, -1.0]]), 1, 4, 2).tolist() == [[0.0, 0.0, 0.0, -1.0]] * 2
