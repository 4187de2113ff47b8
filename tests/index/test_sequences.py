"""Shared helpers of the indexes."""

from specdec_lib.index.sequences import continuation, restore


def test_put_back_restores_old_values_and_deletes_new_keys():
    table = {"kept": 1, "changed": 9, "new": 9}
    restore(table, {"changed": 2, "new": None})
    assert table == {"kept": 1, "changed": 2}


def test_a_copy_that_reaches_the_end_goes_on_with_its_own_first_tokens():
    assert continuation((9, 1, 2, 3), 1, 7) == (1, 2, 3, 1, 2, 3, 1)
    assert continuation((9, 1, 2, 3), 1, 2) == (1, 2)
    assert continuation((9, 1), 2, 3) == ()
