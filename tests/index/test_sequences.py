"""Shared helpers of the indexes."""

from specdec_lib.index.sequences import restore


def test_put_back_restores_old_values_and_deletes_new_keys():
    table = {"kept": 1, "changed": 9, "new": 9}
    restore(table, {"changed": 2, "new": None})
    assert table == {"kept": 1, "changed": 2}
