"""What the gains of words in batches support: none has an interval, so near ones are not told apart."""

import pytest

from specdec_lib.analysis.word_batches import (
    WordBatches,
    WordRow,
    change_sentence,
    gains_sentence,
    strict_speed_sentence,
)


def row(gain, batch=1, method="specdec", kind="words"):
    return WordRow(kind, batch, method, False, 1, 1, 10, 30, 1.0, gain, gain, 0.5, 0.1, 0.4, None)


@pytest.mark.parametrize(("few", "many", "said"), [
    (1.16, 1.21, "words, specdec: the gain at batch 16 is not told apart from that at 1, 1.21 against 1.16"),
    (1.2, 0.9, "words, specdec: the gain at batch 16 is smaller than that at 1, 0.90 against 1.20"),
    (0.8, 1.0, "words, specdec: the gain at batch 16 is larger than that at 1, 1.00 against 0.80"),
    (None, 1.0, "words, specdec: no gain was measured in both batches")])
def test_a_gain_changes_with_the_batch_where_it_changes_by_a_quarter(few, many, said):
    assert change_sentence("specdec", row(few), row(many, 16)) == said


@pytest.mark.parametrize(("gains", "said"), [
    ((0.83, 1.21),
     "words, measured without intervals: 0.83 to 1.21 times greedy decoding, none of 2 told apart from 1"),
    ((0.6, 1.21, None),
     "words, measured without intervals: 0.60 to 1.21 times greedy decoding, 1 of 2 told apart from 1"),
    ((), "words: no gain was measured")])
def test_gains_are_a_range_without_greedy_decoding_and_other_kinds(gains, said):
    rows = [*map(row, gains), row(1.0, method="ar"), row(3.0, kind="sentences")]
    assert gains_sentence(WordBatches(tuple(rows), ()), "words") == said


def test_the_speed_of_strict_decoding_leaves_out_peers_and_methods_with_other_ids():
    rows = [row(1.0, method="ar"), row(0.8), row(1.3, 16), row(2.0, method="lossy")._replace(identical=0),
            row(3.0, method="beam")._replace(peer=True), row(None)]
    assert strict_speed_sentence(WordBatches(tuple(rows), ())) == (
        "End to end, in batches of 1 and 16, it ran at 0.80 to 1.30 times greedy decoding's speed; at least 25% "
        "faster: 1 of 2 settings.")
    assert strict_speed_sentence(WordBatches(tuple(rows[:1]), ())) == (
        "No run timed a method that keeps greedy decoding's output.")
