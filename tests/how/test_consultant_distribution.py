"""The consultant's rule as a whole: its limits, and the distribution of what it writes."""

import pytest

from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.consultant import Consultant
from specdec_lib.how.match import Match
from specdec_lib.loop import begin, decode
from specdec_lib.types import Method
from specdec_lib.when.fixed import Fixed
from tests.how.surprise import FREE, n, trees
from tests.worlds import DRAFT, PROMPT, TARGET, WARM, kit, run, true_law


def outputs(how, what, sampling, seed, tokens=14):
    return run(Method(Fixed(3, 2), what, how), Dice(seed), sampling, tokens)


@pytest.mark.parametrize("sampling", [None, WARM], ids=["greedy", "sampling"])
@pytest.mark.parametrize("what", [trees, "draft-model"], ids=["tree", "draft-model"])
def test_without_any_tolerance_nothing_passes_and_the_output_is_plain_decodings(sampling, what):
    for seed in range(10):
        world = kit(sampling)
        part = what if callable(what) else world.part(what)
        assert outputs(Consultant(0.0), part, sampling, seed) == outputs(Match(), part, sampling, seed)
    last = list(decode(PROMPT, TARGET, Fixed(3), part, Consultant(0.0), max_new_tokens=9, sampling=sampling,
                       dice=Dice(1)))[-1]
    assert not any(round.verdict.path for round in last.rounds)


@pytest.mark.parametrize("what", [trees, "draft-model"], ids=["tree", "draft-model"])
def test_where_everything_is_spared_only_the_targets_own_tokens_pass_and_greedy_output_is_plain_decodings(what):
    world = kit(None)
    part, spared = what if callable(what) else world.part(what), Consultant(FREE, never=frozenset({0, 1, 2}))
    assert outputs(spared, part, None, 1) == outputs(Match(), part, None, 1)


def test_without_a_bound_every_drafted_token_is_kept():
    what = kit().part("draft-model")
    last = list(decode(PROMPT, TARGET, Fixed(3), what, Consultant(FREE), max_new_tokens=30, sampling=WARM,
                       dice=Dice(3)))[-1]
    assert all(round.verdict.path == tuple(range(len(round.draft))) for round in last.rounds)
    assert sum(len(round.draft) for round in last.rounds) > 15


def distribution_of(how, depth=2, tokens=3):
    return every_outcome(lambda dice: run(Method(Fixed(depth), kit().part("draft-model"), how), dice, tokens=tokens))


def test_one_drafted_token_leaves_exactly_the_distribution_that_is_written_down():
    """After (0, 1) p = (.25, .15, .6), and q = (.3, .3, .4) of the draft after 1; eps lets 0 and 2 pass."""
    def once(dice):
        session = begin(PROMPT, 9, sampling=WARM)
        draft = kit().part("draft-model")(session, Fixed(1)(session, dice), dice)
        return Consultant(n(.2))(session, draft, TARGET(PROMPT, draft), dice).tokens[0]

    p, q = (TARGET.logits(PROMPT).exp().tolist(), DRAFT.logits(PROMPT).exp().tolist())
    want = {x: q[x] * (x != 1) + q[1] * p[x] for x in range(3)}
    dist = every_outcome(once)
    assert dist == pytest.approx(want, abs=1e-12)
    assert distance(dist, dict(enumerate(p))) > .1


def test_the_distribution_is_the_targets_without_tolerance_and_the_drafts_without_a_bound():
    assert distance(distribution_of(Consultant(0.0)), true_law()) < 1e-12
    drafted = distribution_of(Consultant(FREE), depth=3)                       # two drafted, then a bonus of the target
    want = {x: sum(prob for path, prob in true_law(DRAFT).items() if path[:2] == x[:2])
            * float(TARGET.logits(PROMPT + x[:2]).exp()[x[2]]) for x in true_law()}
    assert distance(drafted, want) < 1e-12


def test_the_more_it_tolerates_the_further_it_is_off():
    gaps = [distance(distribution_of(Consultant(eps)), true_law()) for eps in (0.0, .6, 1.0, 1.5, FREE)]
    assert gaps[0] < 1e-12
    assert gaps[2] > .02
    assert gaps[-1] > gaps[2]
    assert gaps == pytest.approx(sorted(gaps), abs=.1)
