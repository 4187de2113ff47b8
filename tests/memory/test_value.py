from specdec_lib.memory.value import carried_value
from specdec_lib.types import Kit


def kits():
    """Kits of successive decodes with one memory."""
    memory = {}
    while True:
        yield Kit(None, memory=memory)


def test_what_a_decode_leads_to_counts_from_the_next_one_on():
    kit = kits()
    first = carried_value(next(kit), "sum", 0)
    first.hear(3)
    first.hear(5)
    assert first.value == 0
    assert carried_value(next(kit), "sum", 0).value == 5


def test_asked_twice_in_one_decode_it_is_settled_once():
    kit = next(kits())
    carried_value(kit, "sum", 0).hear(4)
    assert carried_value(kit, "sum", 0).value == 0


def test_a_decode_that_hears_nothing_leaves_the_value_alone():
    kit = kits()
    carried_value(next(kit), "sum", 7)
    assert [carried_value(next(kit), "sum", 0).value for _ in range(3)] == [7, 7, 7]


def test_names_and_memories_are_kept_apart():
    kit = kits()
    carried_value(next(kit), "one", 0).hear(1)
    assert carried_value(next(kit), "other", 0).value == 0
    assert carried_value(Kit(None), "one", 0).value == 0
