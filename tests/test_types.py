"""Values that cross the seams, and ten-line fakes of every kind of part that is to come through them."""

from dataclasses import dataclass, field
from functools import reduce

import pytest
import torch

from specdec_lib.cards import Kit
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin, decode, rounds, step
from specdec_lib.scores import Categorical, Scores, TokenStats
from specdec_lib.topk import argmax, block_maxima, top_k
from specdec_lib.trees import deterministic_chain, deterministic_tree, prune, with_notes
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft, Lattice, Method, Refusal, Round, Session, Verdict
from specdec_lib.when.fixed import Fixed
from tests.worlds import PROMPT, TARGET, WARM, Scripted, run, true_law

TEXT = (5, 6, 7, 8, 5, 6, 7, 9, 10, 11)


def last(sessions) -> Session:
    for session in sessions:
        pass
    return session


def oracle(session, budget, dice):                     # a drafter that knows the text
    start = len(session.output)
    return deterministic_chain(TEXT[start:start + budget.depth], "oracle")


def test_a_budget_within_a_session_bounds_every_sources_own_too():
    short = Session((1, 2), 2, 3)
    assert Budget.of("a", 2).then(Budget.of("b", 9)).within(short) == Budget.of("a", 2).then(Budget.of("b", 2))
    assert Budget.of("a", 9).then(Budget.of("b", 1)).within(short) == Budget.of("a", 2).then(Budget.of("b", 1))
    same = Budget.of("a", 2).then(Budget.of("b", 1))
    assert same.within(short) is same


@pytest.mark.parametrize("sizes", [{"depth": -1}, {"depth": 1, "width": 0}, {"depth": 1, "width": 1001},
                                   {"depth": 1, "nodes": -1}], ids=str)
def test_a_budget_of_impossible_sizes_is_refused(sizes):
    with pytest.raises(Refusal, match="depth >= 0, width from 1 to 1,000 and nodes >= 0, got"):
        Budget(**sizes)


def test_top_by_blocks_is_the_exact_top():
    logits = torch.randn(5, 4096, generator=torch.Generator().manual_seed(0))
    value, column = top_k(logits, 8)
    assert torch.equal(value, torch.topk(logits, 8).values)
    assert torch.equal(logits.gather(1, column), value)


@pytest.mark.parametrize("columns", [97, 4096])
def test_the_top_begins_with_the_best_and_names_every_column_once_where_logits_are_equal(columns):
    logits = torch.randn(40, columns, generator=torch.Generator().manual_seed(0)).round()      # full of ties
    value, column = top_k(logits, 8)
    assert torch.equal(column[:, 0], logits.argmax(-1))
    assert torch.equal(logits.gather(1, column), value)
    assert all(len({*row}) == 8 for row in column.tolist())


def test_the_best_of_a_row_is_the_first_of_equals_with_and_without_its_peaks():
    logits = torch.zeros(2, 4096)
    logits[0, [300, 301, 4000]] = 1.0
    assert argmax(logits).tolist() == [300, 0] == argmax(logits, block_maxima(logits)).tolist()
    assert block_maxima(torch.zeros(1, 100)) is None
    assert argmax(torch.zeros(1, 100)).tolist() == [0]


def test_a_law_has_no_chance_outside_its_support():
    dist = Categorical(torch.tensor([4, 7]), torch.tensor([.25, .75]))
    assert dist.probability(7) == .75
    assert dist.probability(5) == 0
    assert Categorical.point_mass(3).probability(4) == 0


def test_a_draft_knows_paths_depths_and_children():
    draft = deterministic_tree([(1, 2, 3), (1, 4)], nodes=9)
    assert draft.tokens == (1, 2, 3, 4)
    assert draft.parents == (ROOT, 0, 1, 0)
    assert draft.depths == (1, 2, 3, 2)
    assert draft.path(2) == (0, 1, 2)
    assert draft.children[0] == (1, 3)


def test_a_kept_part_of_a_draft_is_renumbered():
    draft = deterministic_tree([(1, 2, 3), (4, 5)], nodes=9).keep((0, 3, 4))
    assert draft.tokens == (1, 4, 5)
    assert draft.parents == (ROOT, ROOT, 1)


def test_prune_keeps_the_node_at_which_the_stop_fired():
    stats = tuple(TokenStats(prob, prob, 0, 0) for prob in (.9, .2, .9))
    draft = Draft((1, 2, 3), (ROOT, 0, 1), stats=stats)
    assert prune(draft, Budget(3, stop=lambda trail: trail[-1].prob < .5)).tokens == (1, 2)
    assert prune(draft, Budget(1)).tokens == (1,)


def test_the_budget_never_drafts_what_cannot_be_emitted():
    session = begin((1, 2), max_new_tokens=3)
    assert Budget(8).within(session).depth == 2
    assert Budget(1).within(session).depth == 1


def test_a_verdict_is_cut_after_the_first_end_token_and_at_the_room():
    draft = deterministic_chain((5, 6, 7))
    verdict = Verdict.of(draft, (0, 1, 2), 8)
    assert verdict.until(begin((1,), 9, end=frozenset({6}))).tokens == (5, 6)
    assert verdict.until(begin((1,), 9, end=frozenset({6}))).path == (0, 1)
    assert verdict.until(begin((1,), 4)).tokens == (5, 6, 7, 8)
    assert verdict.until(begin((1,), 1)) == Verdict((0,), (5,))


def test_scores_of_a_smaller_head_speak_in_tokens():
    scores = Scores(torch.tensor([[0., 3., 1.]]), ids=torch.tensor([10, 20, 30]))
    assert scores.best == (20,)
    assert scores.distribution(0, WARM).ids.tolist() == [10, 20, 30]
    assert scores.logit(0, 30) == 1.0
    assert scores.row_stats((0,), k=2).ids.tolist() == [[20, 30]]


def test_a_brief_holds_entropy_in_nats_of_the_raw_softmax():
    row_stats = Scores(torch.zeros(2, 4)).row_stats((1,), k=2)
    assert row_stats.entropy[0] == pytest.approx(torch.log(torch.tensor(4.)).item(), abs=1e-6)


def test_greedy_without_dice_refuses_a_real_coin():
    with pytest.raises(ValueError, match="dice"):
        NO_DICE.choose(Categorical(torch.tensor([0, 1]), torch.tensor([.5, .5])))


# --- fakes of every kind of part ------------------------------------------------------------------------------------

def test_a_trigger_names_the_source_that_speaks():
    def trigger(session, dice):                        # entropy of the last committed row, no extra forward
        calm = session.rounds and session.rounds[-1].row_stats.entropy[-1] < 2.0
        return Budget.of("copy" if calm else "model", 3)

    def switch(session, budget, dice):
        return deterministic_chain(oracle(session, budget, dice).tokens, budget.source)

    target = Scripted((1, 2), TEXT)
    done = last(decode((1, 2), target, trigger, switch, Match(), max_new_tokens=10))
    assert done.output == TEXT
    assert [round.draft.source[0] for round in done.rounds if len(round.draft)] == ["model", "copy", "copy"]


def test_a_drafter_that_needs_features_gets_them_without_a_forward():
    target = Scripted((1, 2), TEXT)
    kit = Kit(target)

    def eagle(session, budget, dice):
        rows = kit.target.features(session.tokens[:-1])            # one row per fed token
        assert rows.shape[0] == len(session.tokens) - 1
        return deterministic_chain((int(session.tokens[-1]) + 1,), "eagle")

    done = last(decode((1, 2), target, Fixed(1), eagle, Match(), max_new_tokens=10))
    assert done.output == TEXT
    assert target.forwards == len(done.rounds) < 10


def test_a_drafter_catches_up_after_sleeping_through_rounds():
    seen = []

    @dataclass
    class Sleeper:
        read: list = field(default_factory=list)

        def __call__(self, session, budget, dice):
            missed = session.tokens[len(self.read):]               # the session says what was missed
            self.read += missed
            seen.append(len(missed))
            return Draft()

    sometimes = lambda session, dice: Budget(2 if len(session.rounds) % 3 == 0 else 0)      # noqa: E731
    last(decode((1, 2), Scripted((1, 2), TEXT), sometimes, Sleeper(), Match(), max_new_tokens=10))
    assert seen == [2, 3, 3]                           # slept through two rounds each time; at the end no room to draft


def test_a_stop_rule_adapts_its_threshold_over_rounds():
    @dataclass(frozen=True)
    class Below:
        threshold: float

        def __call__(self, trail):
            return trail[-1].prob < self.threshold

    def adaptive(session, dice):                       # AdaEDL's shape: folded from the history, no observe
        def stricter(threshold, round):
            return threshold + .1 if len(round.verdict.path) < len(round.draft) else threshold - .1
        return Budget(4, stop=Below(reduce(stricter, session.rounds, .5)))

    session = begin((1, 2), 20)
    target = Scripted((1, 2), TEXT)
    assert adaptive(session, NO_DICE).stop.threshold == .5
    session = step(session, target, Method(adaptive, oracle, Match()))
    assert adaptive(session, NO_DICE).stop.threshold == pytest.approx(.4)
    assert adaptive(session, NO_DICE) == adaptive(session, NO_DICE)          # asked twice, it answers the same


def test_a_rule_with_a_memory_folds_the_likelihood_it_has_seen():
    running = []

    def consultant(session, draft, scores, dice):
        nll = reduce(lambda r, x: .2 * r - .8 * x, [x for round in session.rounds for x in round.logprobs], 0.0)
        running.append(nll)
        return Match()(session, draft, scores, dice)

    last(decode((1, 2), Scripted((1, 2), TEXT), Fixed(2), oracle, consultant, max_new_tokens=10))
    assert running[0] == 0
    assert all(value > 0 for value in running[1:])


def test_a_lattice_is_searched_into_a_certain_path():
    def search(session, budget, dice):
        n = len(session.output)
        lattice = Lattice(torch.tensor([[TEXT[n], 30], [31, TEXT[n + 1]]]), torch.tensor([[-.1, -2.], [-.7, -.8]]))
        path = lattice.ids.gather(1, torch.tensor([[0], [1]]))[:, 0].tolist()   # as some search would choose
        return with_notes(deterministic_chain(path, "lattice"), raw_length=len(lattice.ids))

    done = last(decode((1, 2), Scripted((1, 2), TEXT), Fixed(2), search, Rejection(), max_new_tokens=9))
    assert done.output == TEXT[:9]
    assert len(done.rounds) == 3
    assert done.rounds[0].draft.notes["raw_length"] == 2
    assert not done.rounds[0].draft.q


def test_one_of_several_chains_is_chosen_by_the_target_and_judged_as_certain():
    def chains(session, budget, dice):
        drawn = [[dice.choose(DRAFT_LAW) for _ in range(2)] for _ in range(2)]
        return deterministic_tree(drawn, nodes=4)

    def self_selection(session, draft, scores, dice):
        if not len(draft):
            return Rejection()(session, draft, scores, dice)
        leaves = [node for node in range(len(draft)) if node not in draft.children]

        def streak(leaf):
            total, prob = 0.0, 1.0
            for node in draft.path(leaf):
                prob *= scores.distribution(draft.parents[node] + 1, session.sampling).probability(draft.tokens[node])
                total += prob
            return total
        best = draft.path(max(leaves, key=streak))
        one = draft.keep(best)
        rows = scores.logits[[0, *(node + 1 for node in best)]]
        verdict = Rejection()(session, one, Scores(rows), dice)
        return Verdict(tuple(best[i] for i in verdict.path), verdict.tokens)

    method = Method(Fixed(2, 2), chains, self_selection)
    dist = every_outcome(lambda dice: run(method, dice, tokens=3))
    assert distance(dist, true_law(tokens=3)) < 1e-12


DRAFT_LAW = Categorical(torch.tensor([0, 2]), torch.tensor([.4, .6], dtype=torch.float64))


def test_a_round_holds_nothing_of_the_size_of_the_vocabulary():
    def drawer(session, budget, dice):
        return Draft((0,), (ROOT,), (DRAFT_LAW,))

    done = last(decode(PROMPT, TARGET, Fixed(1), drawer, Rejection(), max_new_tokens=2, sampling=WARM, dice=Dice(1)))
    assert isinstance(done.rounds[0], Round)
    assert all(not round.draft.q for round in done.rounds)


def test_a_session_can_be_scrubbed_through_time():
    sessions = list(rounds(begin((1, 2), 10), Scripted((1, 2), TEXT), Method(Fixed(2), oracle, Match())))
    assert [len(session.output) for session in sessions] == [3, 6, 9, 10]
    assert sessions[0].output == TEXT[:3]              # earlier ones stay as they were
