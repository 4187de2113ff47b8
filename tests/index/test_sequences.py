"""What indexes share when they follow sessions."""

from specdec_lib.index.sequences import put_back


def test_a_change_is_undone_key_by_key_and_new_keys_go():
    table = {"kept": 1, "changed": 9, "new": 9}
    put_back(table, {"changed": 2, "new": None})
    assert table == {"kept": 1, "changed": 2}
