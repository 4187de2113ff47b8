"""Values that outlive a prompt: folded once when a decode is over, the last round included."""

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.loop import begin, run
from specdec_lib.memory.value import carried_value
from specdec_lib.types import Session
from tests.worlds import PROMPT, TARGET, kit


def emitted(total, session):
    return total + len(session.output)


def kits():
    """Kits of successive decodes with one memory."""
    memory = {}
    while True:
        yield Kit(None, memory=memory)


def over(kit, tokens):
    for one in kit.memory.values():
        one.finish(Session(tokens, 0, 0))


def test_what_a_decode_leads_to_counts_from_the_next_one_on():
    kit = kits()
    first = next(kit)
    assert carried_value(first, "sum", 0, emitted) == 0
    over(first, (1, 2, 3))
    assert carried_value(next(kit), "sum", 0, emitted) == 3


def test_names_and_memories_are_separate():
    kit = kits()
    carried_value(next(kit), "one", 0, emitted)
    one = next(kit)
    over(one, (1,))
    assert carried_value(one, "one", 0, emitted) == 1
    assert carried_value(one, "other", 5, emitted) == 5
    assert carried_value(Kit(None), "one", 0, emitted) == 0


def test_the_loop_finishes_a_memory_once_with_every_token_also_of_a_decode_that_is_given_up():
    method, world = catalog.build("ar", kit()), next(kits())
    carried_value(world, "sum", 0, emitted)
    *_, last = run(begin(PROMPT, 7), TARGET, method, memory=world.memory)
    assert world.memory["sum"].value == len(last.output) == 7
    steps = run(begin(PROMPT, 7), TARGET, method, memory=world.memory)
    next(steps)
    assert world.memory["sum"].value == 7, "not while it runs"
    steps.close()
    assert world.memory["sum"].value == 8
