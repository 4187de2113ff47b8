"""Blocks behind a text see the text up to their anchor, and themselves."""

import torch

from specdec_lib.training.losses.block_masks import Blocks, drawn_anchors, in_parts

BLOCKS = Blocks(torch.tensor([[1, 4, 1], [0, 2, 3]]), torch.tensor([[4, 2, 3], [1, 4, 4]]), 4)


def test_what_a_row_sees_equals_a_plain_loop():
    seen, text = BLOCKS.seen(6), 6
    assert seen.shape == (2, 1, 9, 15)
    for b in range(2):
        for row in range(9):
            block, anchor = row // 3, int(BLOCKS.anchors[b, row // 3])
            for column in range(15):
                other, slot = (column - text) // 3, (column - text) % 3 + 1
                want = column <= anchor if column < text else other == block and slot < BLOCKS.lengths[b, block]
                assert bool(seen[b, 0, row, column]) == want, (b, row, column)


def test_rows_have_the_positions_of_the_tokens_they_hide():
    assert BLOCKS.rows == 3
    assert BLOCKS.places().tolist() == [[[2, 3, 4], [5, 6, 7], [2, 3, 4]], [[1, 2, 3], [3, 4, 5], [4, 5, 6]]]


def test_anchors_are_drawn_among_valid_rows_without_repetition_and_short_texts_say_so():
    valid = torch.zeros(2, 9, dtype=torch.bool)
    valid[0, 2:8] = valid[1, 4:6] = True
    counts = torch.zeros(2, 9)
    for seed in range(300):
        anchors, real = drawn_anchors(valid, 4, torch.Generator().manual_seed(seed))
        assert real.tolist() == [[True] * 4, [True, True, False, False]]
        for b in range(2):
            there = anchors[b][real[b]].tolist()
            assert len(set(there)) == len(there)
            assert all(valid[b, row] for row in there)
            counts[b, there] += 1
    assert torch.allclose(counts[0, 2:8] / 300, torch.full((6,), 4 / 6), atol=0.1)
    again = drawn_anchors(valid, 4, torch.Generator().manual_seed(299))[0]
    assert torch.equal(again, anchors)
    assert drawn_anchors(valid, 99, torch.Generator())[0].shape == (2, 9)


def test_chosen_rows_come_in_parts_each_of_them_once_and_texts_without_any_are_left_out():
    chosen = torch.zeros(3, 9, dtype=torch.bool)
    chosen[0, 2:8] = chosen[2, 5] = True
    there, most = [], []
    for texts, rows, real in in_parts(chosen, 4):
        there += [(int(texts[b]), int(row)) for b in range(len(texts)) for row in rows[b][real[b]]]
        most.append((len(texts), rows.shape[1]))
    assert sorted(there) == sorted(map(tuple, chosen.nonzero().tolist()))
    assert most == [(2, 4), (1, 2)]
    assert list(in_parts(chosen & False, 4)) == []
