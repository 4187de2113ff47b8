"""Rates of hand-worked sessions: every number below can be checked with a pencil."""

import pytest
import torch

from specdec_lib import measure
from specdec_lib.measure import Cost
from specdec_lib.scores import RowStats
from specdec_lib.types import ROOT, Budget, Draft, Round, Seconds, Session, Verdict


def turn(draft=(), parents=None, path=(), extra=9, seconds=(1, 2, 3, 4), source=(), cut=None):
    """A round whose verification rows have the best logits 5 and 5 - row."""
    parents = tuple(range(ROOT, len(draft) - 1)) if parents is None else parents
    tree = Draft(tuple(draft), parents, source=source)
    verdict = Verdict.of(tree, path, extra)
    verdict = verdict if cut is None else Verdict(verdict.path[:cut], verdict.tokens[:cut])
    read = (0, *(node + 1 for node in verdict.path))[:len(verdict.tokens)]
    logits = torch.tensor([[5.0, 5.0 - r] for r in range(len(draft) + 1)])
    row_stats = RowStats(torch.zeros(len(draft) + 1, 2, dtype=torch.long), logits, read)
    return Round(Budget(depth=len(draft)), tree, row_stats, verdict, (-0.5,) * len(verdict.tokens), Seconds(*seconds))


def rows(*rounds):
    return measure.rows(Session((0,), 1, 9, rounds=rounds))


CHAIN = turn((1, 2, 3), path=(0, 1))               # two of three accepted, one correction
MISS = turn((1, 2), path=())
PLAIN = turn()
TREE = turn((1, 2, 3, 4), parents=(ROOT, ROOT, 1, 2), path=(1, 2, 3))   # the second branch, to its end


def test_plain_decoding_has_one_token_per_forward_and_no_acceptance():
    plain = rows(PLAIN, PLAIN)
    assert measure.tokens_per_target_forward(plain) == 1
    assert measure.acceptance_rate(plain) is None
    assert measure.accepted_per_draft_round(plain) is None
    assert measure.draft_round_share(plain) == 0
    assert measure.width(plain) == 1
    assert measure.conditional_acceptance(plain) == []


def test_rates_of_a_mixed_session_are_those_worked_out_by_hand():
    mixed = rows(CHAIN, MISS, PLAIN, TREE)         # emits 3 + 1 + 1 + 4 with 3 + 2 + 0 + 4 nodes
    assert measure.tokens_per_target_forward(mixed) == 9 / 4
    assert measure.acceptance_rate(mixed) == 5 / 9
    assert measure.accepted_per_draft_round(mixed) == 5 / 3
    assert measure.draft_round_share(mixed) == 3 / 4
    assert measure.width(mixed) == (4 + 3 + 1 + 5) / 4


def test_conditional_acceptance_counts_only_rounds_that_went_on_below_the_accepted_node():
    # depth 1: chain, tree yes, miss no; depth 2: chain, tree yes; depth 3: tree yes, chain no; depth 4: nobody went on
    assert measure.conditional_acceptance(rows(CHAIN, MISS, PLAIN, TREE)) == [2 / 3, 1.0, 1 / 2]


def test_a_path_accepted_to_the_end_of_its_branch_is_no_rejection_at_the_next_depth():
    short = turn((1, 2, 3), parents=(ROOT, ROOT, 1), path=(0,))         # node 0 is a leaf, node 2 lies elsewhere
    assert measure.conditional_acceptance(rows(short)) == [1.0]


def test_a_path_cut_by_an_end_token_is_no_rejection():
    cut = turn((1, 2, 3), path=(0, 1, 2), cut=1)
    assert rows(cut)[0].emitted == 1
    assert measure.conditional_acceptance(rows(cut)) == [1.0]


def test_time_shares_sum_to_one_and_index_search_belongs_to_the_drafter():
    shares = measure.time_share(rows(CHAIN, turn(seconds=(0, 6, 4, 0))))
    assert shares == {"target": pytest.approx(7 / 20), "drafter": pytest.approx(8 / 20),
                      "overhead": pytest.approx(5 / 20)}
    assert measure.time_share(()) is None


def test_each_emitted_token_knows_who_proposed_it_and_how_sure_the_target_was():
    one = rows(turn((1, 2, 3), path=(0, 1), source=("a", "b", "c")))[0]
    assert one.origins == ("a", "b", "")
    assert one.tokens == (1, 2, 9)
    assert one.source == "a"
    assert one.margins == (0.0, 1.0, 2.0)
    assert one.nll == 1.5
    assert measure.target_nll((one,)) == 0.5


def test_speedup_is_the_ratio_of_total_seconds_per_token():
    plain, fast = [Cost(10, 10.0), Cost(10, 30.0)], [Cost(10, 5.0), Cost(10, 5.0)]
    assert measure.speedup(plain, fast) == 4.0
    assert measure.speedup(plain, plain) == 1.0
    assert measure.speedup([], []) is None
    assert measure.speedup(plain, [Cost(0, 0.0)]) is None


def test_the_interval_of_equal_pairs_is_a_point_and_needs_five_prompts():
    pairs = [Cost(10, float(i)) for i in range(1, 6)]
    half = [Cost(10, i / 2) for i in range(1, 6)]
    assert measure.speedup_interval(pairs, half) == pytest.approx([2.0, 2.0])
    assert measure.speedup_interval(pairs[:4], half[:4]) is None


def test_the_interval_holds_the_ratio_and_is_the_same_every_time():
    plain = [Cost(10, s) for s in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)]
    other = [Cost(10, s) for s in (1.0, 1.0, 2.0, 3.0, 2.0, 5.0)]
    low, high = measure.speedup_interval(plain, other)
    assert low < measure.speedup(plain, other) < high
    assert [low, high] == measure.speedup_interval(plain, other)


def test_unpaired_prompts_are_refused():
    with pytest.raises(ValueError, match="same prompts"):
        measure.speedup_interval([Cost(1, 1.0)] * 5, [Cost(1, 1.0)] * 6)


def test_the_first_divergence_names_both_tokens_and_the_margin():
    assert measure.divergence((1, 2, 3), (1, 2, 3)) is None
    assert measure.divergence((1, 2, 3), (1, 7, 3), (0.5, 0.1, 0.2)) == measure.Divergence(1, (2, 7), 0.1)
    assert measure.divergence((1, 2), (1, 2, 3), (0.5, 0.1)) == measure.Divergence(2, (None, 3), None)


@pytest.mark.parametrize(("one", "two", "length"), [("abcde", "ace", 3), ("abc", "xyz", 0), ("", "abc", 0),
                                              ("abab" * 40, "baba" * 40, 159), ("aab", "abb", 2)])
def test_the_longest_common_subsequence_is_exact(one, two, length):
    assert measure.longest_common(one, two) == length == measure.longest_common(two, one)


def test_rouge_l_of_ids_is_one_for_equal_and_none_for_nothing():
    assert measure.rouge_l((1, 2, 3), (1, 2, 3)) == 1
    assert measure.rouge_l((), ()) is None
    assert measure.rouge_l((1, 2, 3, 4), (2, 4)) == pytest.approx(2 * 2 / 6)


def test_repeated_4grams_are_counted_within_each_output():
    loop, fresh = (1, 2, 3, 4) * 2, (1, 2, 3, 4, 5)
    assert measure.repeated_4grams([loop]) == 1 / 5
    assert measure.repeated_4grams([fresh, fresh]) == 0
    assert measure.repeated_4grams([(1, 2, 3)]) is None


def test_the_reference_score_takes_the_final_number_in_mathematics_and_words_elsewhere():
    assert measure.reference_score("so 3 + 4 gives 1,207.50 dollars", ["... #### 1207.5"], number=True) == 1
    assert measure.reference_score("about 12", ["#### 13"], number=True) == 0
    assert measure.reference_score("no idea", ["no number"], number=True) is None
    assert measure.reference_score("The Cat sat", ["a dog", "the cat sat down"]) == pytest.approx(6 / 7)
    assert measure.final_number("between 2020-2021") == 2021


def test_the_interval_of_a_share_weighs_prompts_by_their_size_and_needs_five():
    assert measure.share_interval([(1, 2)] * 4) is None
    assert measure.share_interval([(1, 2)] * 5) == [0.5, 0.5]
    low, high = measure.share_interval([(0, 1)] * 9 + [(90, 90)])
    assert low == 0
    assert high > 0.9
    assert measure.share_interval([(0, 0)] * 4 + [(1, 2)]) == [0.5, 0.5]
    assert measure.share_interval([(0, 0)] * 5) is None


def test_a_token_is_not_the_best_where_the_row_before_it_has_a_likelier_one():
    ids = torch.tensor([[1, 9], [7, 2], [9, 4]])                           # the target says 1, then 7, then 9
    row_stats = RowStats(ids, torch.tensor([[5.0, 4.0], [5.0, 4.5], [5.0, 1.0]]), (0, 1, 2))
    tree = Draft((1, 2), (ROOT, 0))
    told = Round(Budget(depth=2), tree, row_stats, Verdict.of(tree, (0, 1), 9), (-0.5,) * 3, Seconds(1, 2, 3, 4))
    tied = Round(Budget(depth=2), tree, RowStats(ids, torch.full((3, 2), 5.0), (0, 1, 2)), told.verdict, (-0.5,) * 3)
    assert [row.not_best for row in rows(told, tied)] == [1, 0]            # 2 was let stand for 7; a tie is no loss
    assert measure.not_best_per_100(rows(told, tied)) == 100 / 6
    old = rows(told)[0]._replace(not_best=None)
    assert measure.not_best_per_100([old, *rows(tied)]) is None
    assert measure.not_best_per_100([]) is None


def test_a_change_is_a_difference_of_shares_of_totals_and_its_interval_is_paired():
    base, other = [(1, 2)] * 4 + [(9, 10)] * 2, [(2, 2)] * 4 + [(10, 10)] * 2
    assert measure.change(base, other) == pytest.approx(1 - 22 / 28)
    low, high = measure.change_interval(base, other)
    assert .1 <= low < 1 - 22 / 28 < high <= .5                            # all prompts long, or all of them short
    assert (low, high) == tuple(measure.change_interval(base, other))
    even = [(k, 10) for k in range(8)]
    assert measure.change_interval(even, [(k + 1, 10) for k, _ in even]) == pytest.approx([.1, .1])
    assert measure.change_interval(even[:4], even[:4]) is None
    assert measure.change([], []) is None
    with pytest.raises(ValueError, match="6 and 8"):
        measure.change_interval(base, even)
