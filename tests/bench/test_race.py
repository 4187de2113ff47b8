"""A race: one method computes at a time, its clock runs only then, and what was decoded is what each decodes alone."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from specdec_lib import catalog, show
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.race import ANSWERS, ROUNDS, Race, Racer, results, same_ids
from specdec_lib.bench.race_start import check_race, order_for, prompt_race, warm_up
from specdec_lib.how.match import Match
from specdec_lib.loop import decode
from specdec_lib.models.table import Table
from specdec_lib.toys.toy_bench import untrained_environment
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Budget, Refusal

ALWAYS_NEXT = Table({(): (1, 0, 0), (0,): (0, 1, 0), (1,): (0, 0, 1), (2,): (1, 0, 0)})
VOCAB = show.Vocabulary.of("a b c")
PREFILL = 0.5


class Watch:
    """A clock that only decodes move; `log` names who moved it, `ended` who was closed."""

    def __init__(self):
        self.now, self.log, self.ended = 0.0, [], []

    def __call__(self):
        return self.now

    def decoding(self, name, cost, source="suffix-automaton", wrong=1, tokens=4, fail=None):
        """A decode of a cycle whose rounds take `cost`; each drafts one right token and `wrong` wrong ones."""
        def what(session, budget, dice):
            right = (int(session.tokens[-1]) + 1) % 3
            return deterministic_chain((right,) + (right,) * wrong, source)

        def sessions():
            stream = decode(VOCAB.tokens("a"), ALWAYS_NEXT, lambda *_: Budget(5 if source else 0), what, Match(),
                            max_new_tokens=tokens)
            try:
                for session in stream:
                    if len(session.rounds) == fail:
                        raise KeyboardInterrupt
                    self.now += cost + PREFILL * (len(session.rounds) == 1)
                    self.log.append(name)
                    yield replace(session, prefill=PREFILL)
            finally:
                self.ended.append(name)
        return sessions

    def race(self, order=ROUNDS, **costs):
        return Race({name: self.decoding(name, cost) for name, cost in costs.items()}, order, self)


def run(race):
    race.start()
    while race.step():
        pass
    return race.state


def test_the_method_whose_clock_is_behind_computes_next():
    watch = Watch()
    run(Race({"slow": watch.decoding("slow", 2.0, tokens=8), "fast": watch.decoding("fast", 1.0, tokens=8)},
             timer=watch))
    assert watch.log == ["slow", "fast", "fast", "slow", "fast", "fast", "slow", "slow"]


def test_a_clock_runs_only_while_its_method_computes_and_leaves_out_the_prefill():
    state = run(Watch().race(slow=2.0, fast=1.0))
    assert [one.clock for one in state.racers] == [(2.0, 4.0), (1.0, 2.0)]
    assert [one.session.prefill for one in state.racers] == [PREFILL, PREFILL]
    assert (state.seconds, state.finished) == (4.0, True)
    assert [one.tokens_per_second for one in state.racers] == [1.0, 2.0]
    assert [one.tokens_per_forward for one in state.racers] == [2.0, 2.0]


def test_time_between_two_steps_is_on_no_clock():
    watch = Watch()
    race = watch.race(one=1.0, two=1.0)
    race.start()
    while race.step():
        watch.now += 100.0
    assert [one.seconds for one in race.state.racers] == [2.0, 2.0]


def test_answers_follow_one_another_on_request():
    watch = Watch()
    run(watch.race(ANSWERS, slow=2.0, fast=1.0))
    assert watch.log == ["slow", "slow", "fast", "fast"]
    with pytest.raises(ValueError, match="one of rounds, answers"):
        watch.race("sorted", one=1.0)


def test_stop_ends_every_decode_at_once_and_keeps_what_was_decoded():
    watch = Watch()
    race = watch.race(one=1.0, two=1.0)
    race.start()
    race.step()
    race.stop()
    assert not race.running
    assert race.step() is False
    assert watch.ended == ["one"], "the second had not begun"
    assert [one.output for one in race.state.racers] == [(1, 2), ()]
    assert [one.done for one in race.state.racers] == [False, False]
    assert run(race).finished, "a race that was stopped can be started anew"


def test_what_interrupts_one_decode_ends_all():
    watch = Watch()
    race = Race({"one": watch.decoding("one", 1.0), "two": watch.decoding("two", 1.5, fail=2)}, timer=watch)
    with pytest.raises(KeyboardInterrupt):
        run(race)
    assert sorted(watch.ended) == ["one", "two"]
    assert not race.running
    assert [len(one.output) for one in race.state.racers] == [4, 2]


def test_results_compare_seconds_per_token_and_ids_with_the_first():
    watch = Watch()
    plain = watch.decoding("ar", 1.0, source="")
    other = watch.decoding("copy", 1.0, tokens=3)
    state = run(Race({"ar": plain, "copy": watch.decoding("copy", 1.25), "short": other}, timer=watch))
    ar, copy, short = results(state)
    assert (ar.seconds, ar.tokens, ar.tokens_per_forward, ar.times_first, ar.same_ids) == (4.0, 4, 1.0, 1.0, True)
    assert (copy.seconds, copy.tokens, copy.tokens_per_forward, copy.same_ids) == (2.5, 4, 2.0, True)
    assert copy.times_first == pytest.approx(1.6)
    assert (short.tokens, short.same_ids) == (3, False)
    assert copy.prefill == PREFILL


def test_ids_of_an_answer_that_has_not_ended_are_compared_as_far_as_both_go():
    state = run(Watch().race(one=1.0, two=1.0))
    whole, part = state.racers[0], state.racers[1].at(1.0)
    assert not part.done
    assert same_ids(whole, part) is None
    wrong = replace(part, session=replace(part.session, tokens=(0, 2, 2)))
    assert same_ids(whole, wrong) is False
    assert [one.times_first for one in results(Watch().race(one=1.0).state)] == [None]


def test_a_recorded_race_shows_every_moment():
    state = run(Watch().race(slow=2.0, fast=1.0))
    then = state.at(2.5)
    assert [one.output for one in then.racers] == [(1, 2), (1, 2, 0, 1)]
    assert [one.seconds for one in then.racers] == [2.0, 2.0]
    assert [one.done for one in then.racers] == [False, True]
    assert then.racers[0].session.remaining == 2
    assert [one.output for one in state.at(0.0).racers] == [(), ()]
    assert state.at(99.0) == state.at(state.seconds) == state, "a round that ends at that moment is shown"


def test_a_decode_that_ends_without_an_end_token_is_done():
    assert Racer("any").after(None, 1.0) == Racer("any", done=True)


def test_each_answer_of_a_race_is_what_the_method_decodes_alone():
    world, plan = untrained_environment(5), Plan((), max_new_tokens=12, target="toy")
    state = run(prompt_race(plan, ["ar", "draft-model", "sam"], world, "3 1 4 1 5"))
    for one in state.racers:
        kit, session = world.begin(plan, None, world.encode([("user", "3 1 4 1 5")]), "given")
        *_, alone = decode(session.tokens, kit.target, *catalog.build(one.name, kit), max_new_tokens=12,
                           end=world.facts.end)
        assert one.output == alone.output
        assert len(one.clock) == len(alone.rounds)
        assert list(one.clock) == sorted(one.clock)
    assert all(one.same_ids for one in results(state))


def test_methods_with_a_worker_of_their_own_answer_one_after_another():
    asked = Plan(("ar", "pearl"), workers="process")
    assert order_for(asked, ["ar", "pearl"]) == ANSWERS
    assert order_for(asked, ["ar", "sam"]) == ROUNDS
    assert order_for(replace(asked, workers="inline"), ["ar", "pearl"]) == ROUNDS
    assert order_for(replace(asked, workers="inline"), ["ar", "pearl(workers='process')"]) == ANSWERS
    assert order_for(asked, ["ar", "pearl(workers='inline')"]) == ROUNDS


def test_a_warm_up_decodes_with_every_method_and_no_more_than_asked(monkeypatch):
    world, asked = untrained_environment(5), []
    monkeypatch.setattr("specdec_lib.bench.race_start.begin_decode",
                        lambda spec, plan, *more: iter([asked.append((spec, plan.max_new_tokens))]))
    warm_up(Plan((), max_new_tokens=3), ["ar", "sam"], replace(world, warm_up=("1 2",)))
    warm_up(Plan((), max_new_tokens=500), ["ar"], replace(world, warm_up=("1 2",)))
    assert asked == [("ar", 3), ("sam", 3), ("ar", 4)]
    warm_up(Plan(()), ["ar"], replace(world, warm_up=("1 2",), target=SimpleNamespace(context=2)))      # not held
    assert len(asked) == 3


@pytest.mark.parametrize(("specs", "said"), [(["ar"], "takes two methods or more"), ([], "got none"),
                                             (["ar", "sam", "ar"], "ar is named twice")])
def test_a_race_of_one_is_refused(specs, said):
    with pytest.raises(Refusal, match=said):
        check_race(specs)
    with pytest.raises(Refusal, match="at least one method"):
        Race({})
