"""When garbage is collected, and what is searched for it."""

import gc
import weakref

import pytest

from specdec_lib.collection import beside_what_is_loaded, without_collection


class Cycle:
    """Garbage that only the collector finds."""

    def __init__(self):
        self.own = self


@pytest.fixture(autouse=True)
def _nothing_is_set_apart():
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.enable()
    if frozen:
        gc.freeze()


def searches(count: int = 100_000) -> int:
    """How often the collector starts while so many lists are made."""
    started = []
    gc.callbacks.append(lambda phase, info: started.append(phase))
    try:
        made = [[] for _ in range(count)]
    finally:
        gc.callbacks.pop()
    assert len(made) == count
    return started.count("start")


def test_nothing_is_collected_meanwhile_and_the_setting_of_before_is_back_after_an_error():
    assert searches() > 50
    with without_collection():
        assert searches() == 0
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), without_collection():
        raise ZeroDivisionError
    assert gc.isenabled()
    gc.disable()
    with without_collection():
        pass
    assert not gc.isenabled()


def test_what_was_there_before_is_not_searched_and_what_is_made_meanwhile_is():
    old = Cycle()
    before = weakref.ref(old)
    with beside_what_is_loaded():
        del old
        new = weakref.ref(Cycle())
        gc.collect()
        assert new() is None
        assert before() is not None
    gc.collect()
    assert before() is None


def test_objects_that_somebody_keeps_apart_stay_apart():
    gc.freeze()
    count = gc.get_freeze_count()
    with beside_what_is_loaded():
        assert gc.get_freeze_count() == count
    assert gc.get_freeze_count() == count


def test_garbage_of_before_goes_before_the_rest_is_set_apart():
    gone = weakref.ref(Cycle())
    with beside_what_is_loaded():
        assert gone() is None
