from specdec_lib.memory.value import carried_value
from specdec_lib.types import Kit


def kits():
    """Kits of successive decodes with one memory."""
    memory = {}
    while True:
        yield Kit(None, memory=memory)


def test_the_result_of_a_decode_is_the_value_of_the_next():
    kit = kits()
    first = carried_value(next(kit), "sum", 0)
    first.hear(3)
    first.hear(5)
    assert first.value == 0
    assert carried_value(next(kit), "sum", 0).value == 5


def test_within_one_decode_it_is_settled_once():
    kit = next(kits())
    carried_value(kit, "sum", 0).hear(4)
    assert carried_value(kit, "sum", 0).value == 0


def test_a_decode_without_a_result_leaves_the_value_unchanged():
    kit = kits()
    carried_value(next(kit), "sum", 7)
    assert [carried_value(next(kit), "sum", 0).value for _ in range(3)] == [7, 7, 7]


def test_names_and_memories_are_separate():
    kit = kits()
    carried_value(next(kit), "one", 0).hear(1)
    assert carried_value(next(kit), "other", 0).value == 0
    assert carried_value(Kit(None), "one", 0).value == 0
