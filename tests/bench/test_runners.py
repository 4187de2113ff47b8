"""Runners on a table of three tokens: what a decode gives back, what a stream keeps, and what is refused at once."""

import pytest

from specdec_lib import catalog
from specdec_lib.bench import runners
from specdec_lib.bench.results import Outcome
from specdec_lib.cards import Card, TokenizerFacts
from tests.bench.test_orders import make
from tests.bench.test_run import CURVE, plan, world

PROMPT = (1,)                                      # the table goes on with 0, 1, and 2, which ends the text


class DeafTarget:
    """A target that may be asked for nothing."""

    context = None

    def fresh(self):
        return self

    def prefill(self, tokens):
        raise AssertionError("something was decoded")

    __call__ = prefill


def decode_with_captures(monkeypatch, each):
    """How often a decode ran, and what counted, where its n-th run captures `each[n]` graphs."""
    count, ran = [0], []

    def decode_once():
        count[0] += each[len(ran)]
        ran.append(Outcome((len(ran),), .5, 1.0, 1, 1))
        return ran[-1]
    monkeypatch.setattr(runners, "captures", lambda: count[0])
    return runners.without_captures(decode_once), len(ran)


@pytest.mark.parametrize(("each", "runs"), [((0,), 1), ((3, 0), 2), ((3, 1, 0), 3), ((1, 1, 1, 1), 4)])
def test_a_decode_that_captured_a_graph_is_decoded_again_a_few_times_and_the_last_one_counts(monkeypatch, each, runs):
    done, ran = decode_with_captures(monkeypatch, each)
    assert ran == runs
    assert done.tokens == (runs - 1,)


def test_a_stream_with_a_memory_is_not_decoded_again(monkeypatch, learner):
    monkeypatch.setattr(runners, "without_captures", None)
    assert learner["learner (warm)"].run(PROMPT, (1, 0), 0).tokens


class StubPeer:
    """A peer that notes what it is called with."""

    name = "hf-stub"

    def __init__(self):
        self.calls = []

    def __call__(self, ids, max_new_tokens, seed):
        self.calls.append((ids, max_new_tokens, seed))
        return Outcome((0, 1, 2), .5, 1.0, 2, 2)


@pytest.fixture
def learner(monkeypatch):
    """A method of the catalogue that copies from earlier answers, and its runners by name."""
    card = Card("learner", idea="", source="", make=make, learns_across_prompts=True)
    monkeypatch.setitem(catalog._cards("methods"), "learner", card)
    return by_name(world(facts=TokenizerFacts(vocab=3)), methods=("ar", "learner"), repeats=2)  # no token ends the text


def by_name(a_world=None, **changes):
    made = runners.make_runners(plan(**changes), a_world or world(), lambda: CURVE)
    return {one.name: one for one in made}


def accepted(outcome):
    return [row.accepted for row in outcome.rows]


@pytest.mark.parametrize(("name", "of_rounds"), [("ar", [0, 0, 0]), ("draft-model", [0, 1])])
def test_a_method_gives_the_targets_tokens_and_one_row_a_forward(name, of_rounds):
    outcome = by_name()[name].run(PROMPT, (7, 0), 0)
    assert outcome.tokens == (0, 1, 2)
    assert accepted(outcome) == of_rounds
    assert outcome.forwards == len(of_rounds)
    assert sum(row.emitted for row in outcome.rows) == 3
    assert outcome.seconds == pytest.approx(sum(row.seconds for row in outcome.rows))


def test_a_peer_gives_its_own_outcome_and_every_repeat_has_a_seed_of_its_own():
    peer = StubPeer()
    runner = by_name(world(peers=(peer,)), seed=40)["hf-stub"]
    assert [runner.run(PROMPT, (7, 0), repeat) for repeat in (0, 2)] == [Outcome((0, 1, 2), .5, 1.0, 2, 2)] * 2
    assert peer.calls == [(PROMPT, 6, 40), (PROMPT, 6, 42)]
    assert (runner.peer, runner.stream) == (True, False)


def test_methods_come_in_the_order_of_the_plan_and_peers_after_them(learner):
    assert list(learner) == ["ar", "learner", "learner (warm)"]
    assert [one.stream for one in learner.values()] == [False, False, True]
    assert list(by_name(world(peers=(StubPeer(),)))) == ["ar", "draft-model", "hf-stub"]


def test_a_lossy_rule_makes_a_lossy_runner():
    found = by_name(methods=("ar", "draft-model", "draft-model@typical"))
    assert {name: one.lossless for name, one in found.items()} == {
        "ar": True, "draft-model": True, "draft-model@typical": False}


def test_a_warm_stream_learns_from_its_last_answer_and_a_cold_method_starts_from_nothing(learner):
    cold, warm = ([learner[name].run(PROMPT, (7, 0), 0) for _ in range(2)] for name in ("learner", "learner (warm)"))
    assert [accepted(one) for one in (*cold, warm[0])] == [[0] * 6] * 3, "one answer of six tokens repeats nothing"
    assert sum(accepted(warm[1])) >= 2, "and the second one copies the first"
    assert {one.tokens for one in (*cold, *warm)} == {(0, 1, 2, 1, 0, 1)}


def test_every_repeat_of_a_stream_has_a_memory_of_its_own(learner):
    first = learner["learner (warm)"].run(PROMPT, (7, 0), 0)
    assert accepted(learner["learner (warm)"].run(PROMPT, (7, 0), 1)) == accepted(first)
    assert accepted(learner["learner (warm)"].run(PROMPT, (7, 0), 0)) != accepted(first)


@pytest.mark.parametrize(("change", "word"), [
    ({"methods": ("draft-model(depht=2)",)}, "depht"), ({"methods": ("eagle",)}, "eagle"),
    ({"methods": ("draft-model@svip(h=0.4,x=1)",)}, "'x'")])
def test_a_spec_that_cannot_be_made_is_refused_before_anything_is_decoded(change, word):
    with pytest.raises(ValueError, match=word):
        by_name(world(target=DeafTarget()), **change)
