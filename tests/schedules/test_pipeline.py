"""Pipeline: two stages emit the target's own text whatever the exit draws, one tested token a round, and flush."""

from dataclasses import dataclass, replace

import pytest

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import decode
from specdec_lib.schedules.pipeline import FirstStage, Pipeline
from specdec_lib.schedules.workers import Workers
from specdec_lib.types import Draft, Method, Verdict
from specdec_lib.when.fixed import Fixed
from tests.schedules.told import ASKED, LAYER, PLAINLY, TARGET, TEXT, WORLD, Told
from tests.worlds import PROMPT, SHAPE, WARM, random_exits, run


def distribution(spec: str, tokens: int = 3, world=WORLD, change=lambda method: method) -> dict:
    def once(dice):
        fresh = replace(world, target=world.target.fresh(), indexes={}, memory={})
        return run(change(catalog.build(spec, fresh)), dice, tokens=tokens, target=fresh.target)
    return every_outcome(once)


PLAIN = distribution("ar")


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_every_length_of_the_flight_keeps_the_target_distribution(ahead):
    assert distance(distribution(f"ppsd(ahead={ahead})"), PLAIN) < 1e-12


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("ids", [(0, 1, 2), (1, 2)], ids=str)
def test_no_exit_moves_the_distribution(seed, ids):
    exits = {"early-exit": random_exits(SHAPE, (1,), ids, seed)}
    assert distance(distribution("ppsd", world=replace(WORLD, checkpoints=exits)), PLAIN) < 1e-12


@pytest.mark.parametrize("spec", ["ppsd@match", "ppsd(ahead=2)@svip", "ppsd@tapout"])
def test_other_rules_and_policies_keep_it_too(spec):
    assert distance(distribution(spec, tokens=2), distribution("ar", tokens=2)) < 1e-12


def test_a_guess_is_accepted_with_the_overlap_of_the_exits_and_the_targets_distribution():
    def accepted(dice):
        fresh = replace(WORLD, target=WORLD.target.fresh())
        sessions = decode(PROMPT, fresh.target, *catalog.build("ppsd", fresh), max_new_tokens=1, sampling=WARM,
                          dice=dice)
        return bool(next(sessions).rounds[0].verdict.path)

    fresh = replace(WORLD, target=WORLD.target.fresh())
    exit = catalog.build("ppsd", fresh).what.model
    p, q = (model(PROMPT, Draft()).distribution(0, WARM) for model in (fresh.target, exit))
    overlap = sum(min(p.probability(token), q.probability(token)) for token in range(3))
    assert every_outcome(accepted)[True] == pytest.approx(overlap, abs=1e-12)


class Trusting(Rejection):
    """Accepts every token that it is shown."""

    def __call__(self, session, draft, scores, dice):
        if not len(draft):
            return super().__call__(session, draft, scores, dice)
        return Verdict((0,), (draft.tokens[0],))


def test_a_rule_that_trusts_the_exit_is_caught():
    changed = distribution("ppsd", change=lambda method: method._replace(how=Trusting()))
    assert distance(changed, PLAIN) > 0.01


def test_a_first_stage_that_says_another_q_than_it_drew_from_is_caught():
    @dataclass(frozen=True)
    class Greedy(FirstStage):
        def __call__(self, session, budget, dice):
            drawn = super().__call__(replace(session, sampling=None), budget, dice)
            return replace(drawn, q=super().__call__(session, budget, Dice(0)).q)

    def change(method):
        return method._replace(what=Greedy(method.what.model))

    assert distance(distribution("ppsd(ahead=0)", change=change), PLAIN) > 0.01


class Keyed(Dice):
    """Dice that remember the key of every random number."""

    drawn: list[tuple] = []

    def fork(self, *key):
        return Keyed(self.seed, self.key + key)

    def flip(self, prob):
        self.drawn.append(("flip", *self.key))
        return super().flip(prob)

    def choose(self, dist):
        if dist.only is None:
            self.drawn.append(("choose", *self.key))
        return super().choose(dist)


def test_drafts_and_verdicts_share_no_random_number_and_no_draft_is_drawn_twice_with_the_same():
    Keyed.drawn = []
    fresh = replace(WORLD, target=WORLD.target.fresh())
    run(catalog.build("ppsd(ahead=3)", fresh), Keyed(5), tokens=30, target=fresh.target)
    drafts = [key for key in Keyed.drawn if "what" in key]
    verdicts = [key for key in Keyed.drawn if not {"what", "when"} & set(key)]
    assert len(set(drafts + verdicts)) == len(drafts + verdicts)
    assert {key[0] for key in drafts} == {"choose"}
    assert len(drafts) > 30 < len(verdicts)
    assert all(key[1] == "at" for key in verdicts), "by position alone"


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_with_match_the_sampled_tokens_are_plain_decodings_own(ahead):
    for seed in range(4):
        one, two = (replace(WORLD, target=WORLD.target.fresh()) for _ in range(2))
        want = run(catalog.build("ar", one), Dice(seed), tokens=20, target=one.target)
        assert run(catalog.build(f"ppsd(ahead={ahead})@match", two), Dice(seed), tokens=20, target=two.target) == want


WRONG = tuple((token + 1) % 32 for token in TEXT)


def told(script, ahead=1, tokens=12, end=frozenset(), workers=Workers()):
    """The session of a decode in which the exit draws this script, the second stage, and the first one's model."""
    ASKED.clear()
    target, model = TARGET.fresh(), TARGET.exit(LAYER).fresh()
    made = Method(Fixed(ahead + 1), Told(model, script), Match(), Pipeline(LAYER, workers))
    *_, session = decode(PROMPT, target, *made, max_new_tokens=tokens, end=end)
    return session, target, model


def mistaken(*places: int) -> tuple[int, ...]:
    """The text with other tokens at these places."""
    return tuple(WRONG[i] if i in places else token for i, token in enumerate(TEXT))


def test_a_perfect_exit_loses_nothing_and_each_round_tops_the_flight_up():
    session, target, model = told(TEXT, ahead=3, tokens=9)
    assert session.output == TEXT[:9]
    assert all(round.verdict.path == (0,) for round in session.rounds)
    # one was drawn with the prompt; three more enter at once, then one a round until the last has been drawn
    assert [round.ahead.tokens for round in session.rounds] == [3, 1, 1, 1, 1, 1, 0, 0, 0]
    assert [round.ahead.branches for round in session.rounds] == [1] * 6 + [0] * 3
    assert sum(round.ahead.discarded for round in session.rounds) == 0
    assert model.fed == len(PROMPT) + 8, "the last token of the text enters no stage"
    assert (target.fed, target.forwards) == (0, 1 + 9), "one row a round through the layers above"


def test_a_wrong_token_flushes_all_that_follow_it_and_the_correction_enters_the_first_stage():
    session, target, model = told(mistaken(4), ahead=2, tokens=10)
    assert session.output == TEXT[:10]
    assert [len(round.verdict.path) for round in session.rounds] == [1, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    discarded = [round.ahead.discarded for round in session.rounds]
    assert discarded == [0, 0, 0, 0, 3, 0, 0, 0, 0, 0], "the wrong token, and the flight behind it"
    assert [round.ahead.tokens for round in session.rounds] == [2, 1, 1, 1, 1, 2, 1, 1, 0, 0]
    assert model.fed == len(PROMPT) + 9 + 2, "two wrong rows: of the wrong token and of the one that followed it"
    assert (target.fed, target.forwards) == (0, 1 + 10), "no wrong row reaches the second stage"


def test_an_exit_that_is_always_wrong_costs_rows_of_the_first_stage_alone():
    session, target, _ = told(WRONG, ahead=1, tokens=8)
    assert session.output == TEXT[:8]
    assert not any(round.verdict.path for round in session.rounds)
    assert [round.ahead.discarded for round in session.rounds] == [2] * 7 + [1]
    assert target.forwards == 1 + 8


@pytest.mark.parametrize("places", [(0,), (1, 2), (0, 3, 5), (11,), tuple(range(0, 12, 2))])
@pytest.mark.parametrize("ahead", [0, 1, 2, 5])
def test_wherever_the_exit_is_wrong_the_text_is_the_targets(places, ahead):
    session, target, _ = told(mistaken(*places), ahead)
    assert session.output == TEXT[:12]
    assert [i for i, round in enumerate(session.rounds) if not round.verdict.path] == list(places)
    logprobs = [value for round in session.rounds for value in round.logprobs]
    plain = [value for round in PLAINLY.rounds[:12] for value in round.logprobs]
    assert logprobs == pytest.approx(plain, abs=1e-12), "no row above saw a wrong token"


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_the_first_stage_runs_ahead_by_no_more_than_it_may(ahead):
    told(mistaken(3, 7), ahead)
    emitted = [start + depth for start, depth in ASKED]
    assert max(emitted) <= len(PROMPT) + 12, "nothing is drawn that could not be emitted"
    session, *_ = told(TEXT, ahead)
    under = 1
    for round in session.rounds:
        under += round.ahead.tokens
        assert under <= ahead + 1
        under = max(1, under - 1) if ahead == 0 else under - 1
    assert all(round.ahead.tokens == 0 for round in session.rounds) == (ahead == 0)


def test_nothing_is_drawn_behind_a_guess_at_which_the_policy_stops():
    def rounds(spec):
        fresh = replace(WORLD, target=WORLD.target.fresh())
        *_, last = decode(PROMPT, fresh.target, *catalog.build(spec, fresh), max_new_tokens=12)
        return last.rounds

    assert [one.ahead.tokens for one in rounds("ppsd(ahead=2)@svip(depth=3, h=0)")] == [0] * 12
    assert [one.ahead for one in rounds("ppsd@svip(depth=2, h=9)")] == [one.ahead for one in rounds("ppsd(ahead=1)")]


@pytest.mark.parametrize("tokens", [1, 2, 3, 5])
@pytest.mark.parametrize("script", [TEXT, WRONG], ids=["right", "wrong"])
def test_a_decode_ends_after_exactly_as_many_tokens_as_it_may_emit(tokens, script):
    assert told(script, 3, tokens)[0].output == TEXT[:tokens]


@pytest.mark.parametrize("script", [TEXT, WRONG], ids=["right", "wrong"])
def test_an_end_token_ends_the_text_and_nothing_is_drawn_behind_it(script):
    place = next(i for i, token in enumerate(TEXT) if i >= 3 and token not in TEXT[:i])
    session, *_ = told(script, 5, 16, end=frozenset({TEXT[place]}))
    assert session.output == TEXT[:place + 1]
    if script is TEXT:
        assert sum(round.ahead.discarded for round in session.rounds) == 0
        assert sum(round.ahead.tokens for round in session.rounds) == place
