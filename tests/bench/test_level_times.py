"""The costs of levels in a world whose clock moves by known seconds: what is timed is what was put in."""

import pytest

from specdec_lib.bench.level_times import LevelSeconds, level_times
from specdec_lib.cost.hierarchy import LevelCost, LevelTerms, renewal_round, stack_latency
from specdec_lib.cost.levels import GivenText
from specdec_lib.dice import Dice
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import step
from specdec_lib.models.table import Table
from specdec_lib.scores import Scores
from specdec_lib.types import Budget, Draft, Method, Refusal, Session
from specdec_lib.what.hierarchy import Hierarchy, Level, ModelDrafter

TEXTS = [GivenText((3, 1, 0, 1, 3), (3,) * 48), GivenText((3, 1, 1), (3,) * 24)]
SECONDS = {"small": .01, "middle": .1, "target": 1.0}          # of a forward over nothing; a tenth more for each row
STATISTICS = {"small": .003, "middle": .02, "target": .25}
FAR = {"small": .004, "middle": .05}                           # more where a larger model has run since
READING = {"small": .0005, "middle": .002, "target": 0.0}      # a token of the prompt


class World:
    """The clock, and the models that a larger one has driven out of the processor's cache."""

    def __init__(self):
        self.now, self.far = 0.0, set()

    def clock(self) -> float:
        return self.now


class SlowScores(Scores):
    """Scores whose statistics take time."""

    def __init__(self, scores: Scores, model: "SlowModel"):
        super().__init__(scores.logits)
        self.model = model

    def stats(self, row, token):
        self.model.world.now += STATISTICS[self.model.name]
        return super().stats(row, token)

    def row_stats(self, rows=(), k=8):
        self.model.world.now += STATISTICS[self.model.name]
        return super().row_stats(rows, 3)


class SlowModel:
    """Always expects the same token, each model another one; with two ids made-up drafts are never right."""

    context = None

    def __init__(self, world: World, name: str, vocab: int):
        self.vocab, self.world, self.name, self.read, self.last = vocab, world, name, 0, ((), Draft())
        best = 2 + list(SECONDS).index(name)
        self.table = Table({(): tuple(.6 if token == best else .1 for token in range(5))})

    def prefill(self, tokens):
        self.world.now += READING[self.name] * max(0, len(tokens) - self.read)
        self.read = max(self.read, len(tokens))
        self.drive_out()

    def __call__(self, tokens, draft):
        before, drafted = self.last
        rows = 1 if draft and before == tokens and drafted.tokens == draft.tokens[:-1] else 1 + len(draft)
        self.last = tokens, draft
        self.world.now += SECONDS[self.name] * (1 + .1 * rows) + FAR.get(self.name, 0) * (self.name in self.world.far)
        self.world.far.discard(self.name)
        self.drive_out()
        return SlowScores(self.table(tokens, draft), self)

    def drive_out(self):
        self.world.far |= set(list(SECONDS)[:list(SECONDS).index(self.name)])


def opened(world: World, vocab: int = 2) -> dict[str, SlowModel]:
    return {name: SlowModel(world, name, vocab) for name in SECONDS}


@pytest.fixture(scope="module")
def timed():
    world = World()
    return level_times(lambda: opened(world), TEXTS, passes=2, clock=world.clock)


def test_forwards_are_charged_by_width_without_what_goes_with_them(timed):
    for name, (curve, _) in timed.items():
        assert curve.widths == (1, 2, 3, 4, 5, 6, 8, 12, 16)
        for width in curve.widths:
            assert curve(width) == pytest.approx(SECONDS[name] * (1 + .1 * width)), f"{name}, {width} wide"


def test_every_term_is_what_was_put_in(timed):
    answer = (48 + 24) / 2
    prompt = {name: READING[name] * (4 + 2) / 2 / answer for name in SECONDS}
    assert timed["small"][1] == pytest.approx(LevelTerms(.003, .003, .004, prompt["small"]))
    assert timed["middle"][1] == pytest.approx(LevelTerms(.02, .02, .05, prompt["middle"]))
    assert timed["target"][1] == pytest.approx(LevelTerms(.25, .25, 0.0, 0.0))


@pytest.mark.parametrize(("drafters", "blocks"), [((), ()), ((0,), (3,)), ((1,), (2,)), ((0, 1), (1, 2)),
                                                  ((0, 1), (3, 4))])
def test_what_is_predicted_is_what_a_round_takes_on_the_same_clock(timed, drafters, blocks):
    costs, never = [LevelCost(*timed[name]) for name in SECONDS], [[0.0] * 3] * 3
    world = World()
    models = opened(world, 5)
    lowest, *above = [name for place, name in enumerate(SECONDS) if place in drafters] or ["target"]
    levels = tuple(Level(name, models[name], block) for name, block in zip(above, blocks[1:], strict=True))
    stack = Hierarchy(ModelDrafter(models[lowest], lowest), *(blocks[:1] or (1,)), levels, Rejection())
    method = Method(lambda session, dice: Budget(20 * len(drafters)), stack, Rejection())
    session = Session((3, 1), 2, 1000)
    took = []
    for _ in range(3):
        start = world.now
        session = step(session, models["target"], method, Dice(0))
        took.append(world.now - start)
    without_reading = [LevelCost(cost.forward, cost.terms._replace(prompt=0.0)) for cost in costs]
    assert len(session.output) == 3, "nothing is accepted, so a round gives one token"
    assert took[1:] == pytest.approx([renewal_round(without_reading, never, drafters, blocks).time] * 2)
    read = sum(costs[i].terms.prompt for i in drafters)
    assert stack_latency(costs, never, drafters, blocks) == pytest.approx(took[-1] + read)


def test_forwards_alone_are_less_than_what_a_round_takes(timed):
    bare, never = [curve for curve, _ in timed.values()], [[0.0] * 3] * 3
    missing = KNOWN_ROUND - renewal_round(bare, never, (0, 1), (3, 4)).time
    # four verifications of the middle model, each over a block of the small one, and the target's own
    assert missing == pytest.approx(4 * (.02 + .004 + 3 * .003) + .05 + .25)


KNOWN_ROUND = 4 * (.004 + 3 * (.011 + .003) + .14 + .02) + .05 + 1.5 + .25


def test_a_start_that_takes_less_than_what_follows_is_none_and_a_width_that_only_starts_is_no_part_of_the_curve():
    found = LevelSeconds(first=[(1, .9), (2, 5.0)], steps=[.5, .7], prompts=[3.0])
    found.later[1] += [1.0, 3.0]
    curve, terms = found.cost(64, 10)
    assert (curve.widths, curve.contexts, curve.seconds) == ((1,), (64,), ((2.0,),))
    assert terms == pytest.approx(LevelTerms(.6, 0.0, 0.0, .3))


def test_texts_without_answers_are_refused():
    with pytest.raises(Refusal, match="at least one token"):
        level_times(lambda: opened(World()), [GivenText((1, 2), ())])
