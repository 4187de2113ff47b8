"""Greedy search of a batch is that of each source alone; a beam of one is greedy, and a wide one finds the best."""

import pytest
import torch

from specdec_lib.seq2seq.alphabet import BEGIN, END, VOCAB, source_ids
from specdec_lib.seq2seq.dictionary import read_held_out
from specdec_lib.seq2seq.search import beam_search, beam_searches, greedy
from specdec_lib.seq2seq.stored import load_verifier
from specdec_lib.seq2seq.verifier import Verifier
from specdec_lib.types import Draft
from tests.seq2seq.worlds import network

NET = network(3)
SOURCES = [source_ids(word) for word in ("photograph", "a", "it's so", "tomatoes")]


def plain(source, longest: int) -> tuple[int, ...]:
    """Token by token, without a batch and without a cache."""
    tokens = (BEGIN,)
    while len(tokens) <= longest and tokens[-1] != END:
        logits = NET.teacher_forced(torch.tensor([source]), torch.tensor([tokens]))
        tokens += (int(logits[0, -1].argmax()),)
    return tokens[1:]


def test_a_padded_batch_gives_every_source_its_own_greedy_output():
    assert list(greedy(NET, SOURCES, 9)) == [plain(source, 9) for source in SOURCES]
    assert list(greedy(NET, SOURCES, 9, batch=1)) == list(greedy(NET, SOURCES, 9, batch=4))


@pytest.mark.parametrize("source", SOURCES)
def test_a_beam_of_all_outputs_finds_the_likeliest_of_two_tokens(source):
    target, best = Verifier(NET, source), (-1e9, ())
    first = target((BEGIN,), Draft()).logits[0].log_softmax(-1)
    for a in range(VOCAB):
        second = target((BEGIN, a), Draft()).logits[0].log_softmax(-1)
        best = max(best, (float(first[a] + second[END]) / 2, (a, END))) if a != END else best
    best = max(best, (float(first[END]), (END,)))
    found, forwards = beam_search(NET, source, 2, width=VOCAB ** 2)
    assert (found, forwards) == (best[1], 2)


@pytest.mark.parametrize(("width", "longest"), [(1, 12), (3, 4), (50, 3)])
def test_beams_that_share_their_forwards_find_what_each_finds_alone(width, longest):
    alone = [beam_search(NET, source, longest, width) for source in SOURCES]
    assert beam_searches(NET, SOURCES, longest, width) == alone
    assert beam_searches(NET, SOURCES[::-1], longest, width) == alone[::-1]


def test_a_beam_leaves_when_its_search_ends_and_the_others_go_on():
    net, some = load_verifier()[0], [one.source for one in read_held_out()[::50]]
    alone = [beam_search(net, source, 90) for source in some]
    assert beam_searches(net, some, 90) == alone
    assert len({forwards for _, forwards in alone}) > 2
    assert all(output[-1] == END for output, _ in alone)


def test_a_beam_of_one_is_greedy():
    assert [output for output, _ in beam_searches(NET, SOURCES, 9, 1)] == [plain(source, 9) for source in SOURCES]
