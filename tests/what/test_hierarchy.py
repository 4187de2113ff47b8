"""A stack of drafters: what a level hands up, how inner rounds are kept, and that no random number serves twice."""

from dataclasses import replace

import pytest

from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.sampling import Sampling
from specdec_lib.types import NO_DICE, Budget, Method, Refusal, Verdict
from specdec_lib.what.hierarchy import NAME, Hierarchy, Level, ModelDrafter, drafter_names
from specdec_lib.when.fixed import Fixed
from tests.worlds import PROMPT, WARM, Scripted, kit, network_kit, run, true_law

ONE = (0, 1, 0)                                    # a prompt of the world with two tokens
TOP = Table({(): (.5, .5), (0,): (.2, .8), (1,): (.7, .3), (0, 1): (.9, .1)})
LOWER = (Table({(): (.8, .2)}), Table({(): (.55, .45), (1,): (.2, .8)}), Table({(): (.3, .7), (0,): (.6, .4)}))
NEVER, ALWAYS, UNIFORM = Table({(): (1., 0.)}), Table({(): (0., 1.)}), Table({(): (.5, .5)})


def stack(models, blocks, how=None) -> Hierarchy:
    """A hierarchy of these models, lowest first."""
    levels = tuple(Level(f"level {n}", model, block) for n, (model, block) in
                   enumerate(zip(models[1:], blocks[1:], strict=True), 1))
    return Hierarchy(ModelDrafter(models[0], "lowest"), blocks[0], levels, how or Rejection())


def law(hierarchy: Hierarchy, tokens: int = 4, sampling=WARM):
    method = Method(Fixed(hierarchy.longest), hierarchy, Rejection())
    return every_outcome(lambda dice: run(method, dice, sampling, tokens, TOP, ONE))


@pytest.mark.parametrize("blocks", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (1, 3), (3, 3)])
def test_three_levels_keep_the_targets_distribution_with_any_blocks(blocks):
    assert distance(law(stack(LOWER[1:], blocks)), true_law(TOP, ONE, 4)) < 1e-12


@pytest.mark.parametrize("blocks", [(1, 1, 1), (1, 2, 3), (2, 2, 2), (3, 1, 2)])
def test_four_levels_keep_the_targets_distribution_with_any_blocks(blocks):
    assert distance(law(stack(LOWER, blocks)), true_law(TOP, ONE, 4)) < 1e-12


@pytest.mark.parametrize("lowest", [NEVER, ALWAYS, UNIFORM, TOP], ids=["never", "always", "uniform", "q = p"])
@pytest.mark.parametrize("middle", [LOWER[2], NEVER, UNIFORM, TOP], ids=["near", "never", "uniform", "q = p"])
def test_no_drafter_however_wrong_moves_the_distribution(lowest, middle):
    assert distance(law(stack((lowest, middle), (2, 2))), true_law(TOP, ONE, 4)) < 1e-12


def test_a_warmer_temperature_reaches_every_level():
    hot = Sampling(temperature=2.0)
    square = {rest: tuple(p ** .5 / sum(x ** .5 for x in row) for p in row) for rest, row in TOP.rows.items()}
    assert distance(law(stack(LOWER[1:], (2, 2)), sampling=hot), true_law(Table(square), ONE, 4)) < 1e-12


def test_a_target_that_shares_no_token_with_its_drafters_keeps_its_distribution():
    apart = Table({(): (0., .4, .6), (1,): (0., .7, .3)})
    hierarchy = stack((Table({(): (1., 0., 0.)}), Table({(): (1., 0., 0.)})), (2, 2))
    method = Method(Fixed(4), hierarchy, Rejection())
    found = every_outcome(lambda dice: run(method, dice, WARM, 4, apart, ONE))
    assert distance(found, true_law(apart, ONE, 4)) < 1e-12


def test_an_inner_rule_that_accepts_everything_moves_the_distribution_and_is_caught():
    class AcceptAll:
        def __call__(self, session, draft, scores, dice):
            node = len(draft) - 1
            return Verdict.of(draft, draft.path(node), dice.choose(scores.distribution(node + 1, session.sampling)))

    assert distance(law(stack(LOWER[1:], (2, 2), AcceptAll())), true_law(TOP, ONE, 4)) > 0.01


class Traced(Dice):
    """Dice that note every key with which a number is drawn, once for each object that draws."""

    drawn: list = []

    def fork(self, *key):
        return Traced(self.seed, self.key + key)

    def _note(self):
        if not any(own is self for own, _ in Traced.drawn):
            Traced.drawn.append((self, self.key))

    def choose(self, dist):
        self._note()
        return super().choose(dist)

    def flip(self, prob):
        self._note()
        return super().flip(prob)


@pytest.mark.parametrize("blocks", [(2, 3), (3, 2, 4)])
def test_no_two_decisions_of_a_draft_share_a_random_number(blocks):
    hierarchy = stack(LOWER[:len(blocks)], blocks)
    for seed in range(20):
        Traced.drawn = []
        hierarchy(begin(ONE, 40, sampling=WARM), Budget(hierarchy.longest), Traced(seed))
        keys = [key for _, key in Traced.drawn]
        assert len(keys) > len(blocks)
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("blocks", [(1, 4), (3, 4), (2, 3, 5), (4,)])
def test_a_level_hands_up_its_block_or_more_and_never_more_than_all_blocks(blocks):
    hierarchy = stack(LOWER[:len(blocks)], blocks)
    lengths = {len(hierarchy(begin(ONE, 99, sampling=WARM), Budget(hierarchy.longest), Dice(seed)))
               for seed in range(40)}
    assert min(lengths) == blocks[-1]
    assert max(lengths) <= hierarchy.longest == sum(blocks)
    assert (len(lengths) > 1) == (len(blocks) > 1), "only a level that verifies overshoots"


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_budget_bounds_the_draft_and_an_end_token_ends_it(depth):
    hierarchy = stack(LOWER[:2], (2, 3))
    for seed in range(20):
        drafted = hierarchy(begin(ONE, 99, sampling=WARM), Budget(depth), Dice(seed))
        assert min(3, depth) <= len(drafted) <= depth
        ended = hierarchy(begin(ONE, 99, frozenset({1}), WARM), Budget(5), Dice(seed))
        assert 1 not in ended.tokens[:-1]


def test_every_token_is_handed_up_with_the_row_of_the_topmost_level_after_its_path():
    draft = stack(LOWER, (2, 3, 4))(begin(ONE, 99, sampling=WARM), Budget(9), Dice(3))
    context = ONE
    for node, token in enumerate(draft.tokens):
        row = LOWER[2].logits(context).exp()
        assert draft.q[node].probs.tolist() == pytest.approx(row.tolist())
        assert draft.stats[node].prob == pytest.approx(float(row[token]))
        context += (token,)
    assert draft.source == ("level 2",) * len(draft)
    assert draft.parents == tuple(range(-1, len(draft) - 1))


def test_the_inner_rounds_are_kept_in_order_and_add_up_to_the_draft():
    draft = stack(LOWER, (2, 3, 4))(begin(ONE, 99, sampling=WARM), Budget(9), Dice(3))
    kept = draft.notes[NAME]
    top = [one for one in kept if one.level == 2]
    assert sum((one.emitted for one in top), ()) == draft.tokens
    assert [one.start for one in top] == [3 + sum(len(each.emitted) for each in top[:n]) for n in range(len(top))]
    below: list[int] = []
    for one in kept:
        assert one.emitted[:one.accepted] == one.drafted[:one.accepted]
        if one.level == 1:
            below += one.emitted
        else:
            assert one.drafted == tuple(below), "what the level below emitted since then"
            below = []
    assert kept[-1].level == 2


def test_a_middle_model_is_asked_once_a_round_and_the_lowest_once_a_token():
    text = (5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
    lowest, middle, target = (Scripted((1, 2), text) for _ in range(3))
    draft = stack((lowest, middle), (2, 5))(begin((1, 2), 99), Budget(7), NO_DICE)
    assert draft.tokens == text[:6], "two rounds of two and one token"
    assert (middle.forwards, lowest.forwards, target.forwards) == (2, 4, 0)


def test_what_a_level_rejects_is_not_handed_up():
    lowest, middle = Scripted((1, 2), (5, 6, 9, 9, 9, 9)), Scripted((1, 2), (5, 6, 7, 8, 9, 10))
    draft = stack((lowest, middle), (3, 3))(begin((1, 2), 99), Budget(6), NO_DICE)
    first = draft.notes[NAME][0]
    assert (first.drafted, first.accepted, first.emitted) == ((5, 6, 9), 2, (5, 6, 7))
    assert draft.tokens == (5, 6, 7)


def test_a_stop_rule_cuts_what_the_topmost_level_hands_up_behind_the_token_that_fired():
    hierarchy = stack(LOWER[:2], (3, 4))

    def third(trail):
        return len(trail) == 3

    for seed in range(10):
        whole = hierarchy(begin(ONE, 99, sampling=WARM), Budget(7), Dice(seed))
        cut = hierarchy(begin(ONE, 99, sampling=WARM), Budget(7, stop=third), Dice(seed))
        assert cut.tokens == whole.tokens[:3]
        assert len(cut.q) == len(cut.stats) == 3


def test_a_stop_rule_keeps_the_distribution():
    def unlikely(trail):
        return trail[-1].first < .6

    method = Method(lambda session, dice: Budget(4, stop=unlikely), stack(LOWER[1:], (2, 2)), Rejection())
    found = every_outcome(lambda dice: run(method, dice, WARM, 4, TOP, ONE))
    assert distance(found, true_law(TOP, ONE, 4)) < 1e-12


def test_a_stack_of_one_drafter_is_that_drafter():
    session, budget = begin(PROMPT, 99, sampling=WARM), Budget(3)
    alone = kit().part(NAME, stack="draft-model", blocks=(3,))(session, budget, Dice(4))
    assert alone.tokens == kit().part("draft-model")(session, budget, Dice(4)).tokens


def test_a_copy_may_draft_at_the_bottom():
    draft = kit().part(NAME, stack="suffix-automaton+draft-model", blocks=(3, 2))(
        begin((0, 1, 2, 0, 1, 2, 0, 1), 99), Budget(5), NO_DICE)
    assert draft.notes[NAME][0].drafted[0] == 2, "what followed 0, 1 before"


def test_the_default_stack_has_a_trigram_where_one_was_counted():
    assert network_kit().part(NAME).drafter.name == "ngram"
    assert [level.name for level in network_kit().part(NAME).levels] == ["draft-model"]
    assert type(kit().part(NAME).drafter).__name__ == "PromptLookup"


def test_a_trigram_that_counts_other_tokens_is_not_taken_by_default_and_refused_by_name():
    counted = network_kit()
    other = replace(counted, facts=replace(counted.facts, vocab=counted.facts.vocab + 1))
    assert type(other.part(NAME).drafter).__name__ == "PromptLookup"
    with pytest.raises(Refusal, match="`specdec train ngram` makes one that fits"):
        other.part(NAME, stack="ngram+draft-model")


def test_an_exit_of_the_target_stands_anywhere():
    made = network_kit().part(NAME, stack="early-exit:1+draft-model", blocks=(1, 2))
    draft = made(begin((0, 2, 0), 20, sampling=WARM), Budget(3), Dice(1))
    assert len(draft) >= 2
    assert draft.notes[NAME][0].drafted[0] in (0, 2), "the exit's vocabulary"
    assert network_kit().part(NAME, stack="ngram+early-exit", blocks=(1, 2)).levels[0].name == "early-exit"


@pytest.mark.parametrize(("values", "why"), [
    ({"stack": "eagle+draft-model"}, "a stack names its drafters"),
    ({"stack": "draft-model+prompt-lookup"}, "only the lowest"),
    ({"stack": "draft-model+draft-model"}, "once"),
    ({"stack": ""}, "a stack names"),
    ({"stack": "ngram"}, "specdec train ngram"),
    ({"stack": "draft-model:3"}, "only early-exit takes a layer"),
    ({"blocks": (2,)}, "one block of at least 1"),
    ({"blocks": (0, 3)}, "one block of at least 1"),
    ({"blocks": ()}, "one block of at least 1")])
def test_a_stack_that_cannot_stand_is_refused(values, why):
    with pytest.raises(Refusal, match=why):
        kit().part(NAME, **values)


def test_names_are_read_from_the_lowest_up():
    assert drafter_names("ngram+early-exit:10+draft-model") == ("ngram", "early-exit:10", "draft-model")
