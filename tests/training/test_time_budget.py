"""A time budget runs out, and its iterables stop."""

from specdec_lib.training.time_budget import TimeBudget


class Clock:
    """Stands still but for what is added to `now`."""

    now = 50.0

    def __call__(self):
        return self.now


def slowly(clock, count=10, seconds=3.0):
    """Numbers, each of which takes its time to make."""
    for number in range(count):
        clock.now += seconds
        yield number


def test_what_earlier_runs_used_counts_once_and_may_be_more_than_there_was():
    clock = Clock()
    deadline = TimeBudget(0.5, clock)
    clock.now += 10
    deadline.count(25, 4)                          # 6 seconds of 25 were of this run
    assert (deadline.used, deadline.left) == (29, 1)
    deadline.count(20, 4)                          # all of it was
    assert deadline.used == 29
    deadline.spend(31)
    assert (deadline.used, deadline.left) == (60, 0)


def test_what_is_left_falls_to_zero_and_not_below():
    clock = Clock()
    deadline = TimeBudget(0.5, clock)
    assert deadline.left == 30
    clock.now += 20
    assert deadline.left == 10
    clock.now += 20
    assert deadline.left == 0


def test_time_spent_before_a_kill_is_not_left():
    deadline = TimeBudget(0.5, Clock())
    deadline.spend(12)
    assert deadline.left == 18


def test_a_list_stops_when_its_share_is_over_and_counts_what_it_gave():
    clock = Clock()
    cut = TimeBudget(0.5, clock).cut(slowly(clock), share=0.5)
    assert list(cut) == [0, 1, 2, 3, 4] == list(range(cut.taken))
    assert clock.now == 50 + 15


def test_the_least_items_are_given_even_without_time():
    clock = Clock()
    deadline = TimeBudget(0.5, clock)
    clock.now += 100
    cut = deadline.cut(slowly(clock), least=2)
    assert list(cut) == [0, 1]
    assert cut.taken == 2


def test_a_list_that_ends_in_time_is_given_whole():
    clock = Clock()
    cut = TimeBudget(0.5, clock).cut(slowly(clock, 4), least=9)
    assert list(cut) == [0, 1, 2, 3]
    assert cut.taken == 4
