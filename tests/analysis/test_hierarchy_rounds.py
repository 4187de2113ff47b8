"""Counts of decodes with a stack, from rounds made by hand and from a real decode."""

import torch

from specdec_lib import catalog
from specdec_lib.analysis.hierarchy_rounds import acceptance_by_origin, inner_rounds_of, level_counts
from specdec_lib.dice import Dice
from specdec_lib.loop import begin, decode
from specdec_lib.scores import RowStats
from specdec_lib.types import Budget, Draft, Round, Verdict
from specdec_lib.what.hierarchy import NAME, InnerRound
from tests.worlds import network_kit

NO_ROWS = RowStats(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1))


def after(session, inner, path, tokens):
    handed = sum((one.emitted for one in inner if one.level == 1), ())
    draft = Draft(handed, tuple(range(-1, len(handed) - 1)), notes={NAME: tuple(inner)})
    return session.after(Round(Budget(9), draft, NO_ROWS, Verdict(tuple(path), tokens), (0.0,) * len(tokens)))


def two_rounds():
    start = begin((0,), 5)
    one = after(start, [InnerRound(1, 1, (4, 5), 1, (4, 6)), InnerRound(1, 3, (7, 7), 2, (7, 7, 8))], (0, 1), (4, 6, 1))
    return after(one, [InnerRound(1, 4, (2, 2), 2, (2, 2, 3))], (0, 1), (2, 2))


def test_forwards_and_what_was_rolled_back_are_counted():
    found = level_counts(two_rounds())
    assert found.forwards == (3, 2)
    assert found.lowest == 6
    assert found.rolled_back == (5 - 2) + (3 - 2)
    assert found.tokens_per_target_forward == 5 / 2


def test_acceptance_is_split_by_where_a_token_came_from_up_to_the_first_rejection():
    taken, own = acceptance_by_origin([two_rounds()])
    # first round: 4 taken and kept, 6 own and kept, 7 taken and rejected; second: 2, 2 taken, kept, and cut by the end
    assert (taken.looked_at, taken.accepted) == (4, 3)
    assert (own.looked_at, own.accepted) == (1, 1)
    assert taken.share == .75
    assert acceptance_by_origin([])[0].share is None


def test_a_stack_of_one_drafter_has_the_targets_forwards_alone_and_real_decodes_add_up():
    for spec, levels in (("hierarchical(stack='draft-model',blocks=(2,))", 1), ("hierarchical", 2)):
        made = network_kit()
        *_, done = decode((0, 2, 1), made.target, *catalog.build(spec, made), max_new_tokens=30, dice=Dice(2),
                          sampling=made.sampling)
        found = level_counts(done)
        assert len(found.forwards) == levels
        assert found.forwards[-1] == len(done.rounds)
        assert found.emitted == 30
        drafted = sum(len(one.draft) for one in done.rounds)
        assert found.rolled_back == drafted - sum(len(one.verdict.path) for one in done.rounds)
        assert found.lowest == (sum(len(one.drafted) for one in inner_rounds_of(done)) if levels == 2 else drafted)
