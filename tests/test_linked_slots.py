"""Linked slots on the host: the children of every candidate, best first."""

import pytest
import torch

from specdec_lib.linked_slots import LinkedLattice, UnlinkedSlots
from specdec_lib.types import Lattice

FIRST, AFTER = torch.tensor([.5, .2, .1]).log(), torch.tensor([[[.3, .6, .1], [.2, .1, .3], [0, .4, .5]]]).log()
IDS = torch.tensor([[7, 5, 6], [4, 9, 8]])


def test_children_follow_the_column_before_them_best_first():
    ids, after = LinkedLattice(IDS, FIRST, AFTER).listed(3)
    assert ids == IDS.tolist()
    assert after(0, 0).columns == [0, 1, 2]
    assert [after(1, column).columns for column in range(3)] == [[1, 0, 2], [2, 0, 1], [2, 1, 0]]
    assert after(1, 1).logp == pytest.approx(torch.tensor([.3, .2, .1]).log().tolist())


def test_at_least_two_children_are_listed_and_the_entropy_is_of_all_and_of_what_is_missing():
    for slots in (LinkedLattice(IDS, FIRST, AFTER), UnlinkedSlots(Lattice(IDS, torch.stack((FIRST, AFTER[0, 1]))))):
        _, after = slots.listed(1)
        assert (len(after(0, 0).logp), len(after(1, 1).logp)) == (2, 2)
        for children, probs in ((after(0, 0), (.5, .2, .1, .2)), (after(1, 1), (.2, .1, .3, .4))):
            assert children.entropy == pytest.approx(float(torch.special.entr(torch.tensor(probs)).sum()), rel=1e-6)


def test_unlinked_slots_have_the_same_children_after_every_candidate():
    own = Lattice(IDS, torch.stack((FIRST, AFTER[0, 1])))
    ids, after = UnlinkedSlots(own).listed(3)
    assert ids == IDS.tolist()
    assert [after(1, column) for column in range(3)] == [after(1, 0)] * 3
    assert after(1, 0).columns == [2, 0, 1]
    one = UnlinkedSlots(Lattice(IDS[:1], own.logp[:1])).listed(9)
    assert one[1](0, 0).logp == FIRST.double().tolist()
