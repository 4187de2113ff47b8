import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from specdec_lib.index.static_store import COUNTED, HEADER, CorpusMatch, StaticStore, open_store
from specdec_lib.index.static_store import GAP as END
from specdec_lib.index.store_build import build_store, context_order
from specdec_lib.types import Refusal

GAP = -1


def corpus(rng, documents, letters, longest=40):
    return [[rng.randrange(letters) for _ in range(rng.randrange(1, longest))] for _ in range(documents)]


def by_brute_force(documents, tokens) -> CorpusMatch:
    text = [token for document in documents for token in (*document, GAP)]
    for length in range(min(64, len(tokens)), 0, -1):
        suffix = list(tokens[-length:])
        after = [i + length for i in range(len(text) - length + 1) if text[i:i + length] == suffix]
        if after:
            return CorpusMatch(length, after[0], after[-1], True)
    return CorpusMatch()


@pytest.fixture
def built(tmp_path):
    def make(documents):
        build_store(tmp_path / "store", documents)
        return StaticStore(tmp_path / "store")
    return make


@pytest.mark.parametrize("letters", [1, 2, 5])
def test_matches_agree_with_brute_force(built, letters):
    rng = random.Random(letters)
    documents = corpus(rng, 12, letters)
    store = built(documents)
    for _ in range(200):
        tokens = tuple(rng.randrange(letters + 1) for _ in range(rng.randrange(1, 30)))
        assert store.find(tokens) == by_brute_force(documents, tokens)


def occurrences(documents, part):
    """What followed each occurrence of these tokens in the documents, the end of a document among it."""
    text = [token for document in documents for token in (*document, END)]
    return [text[i + len(part)] for i in range(len(text) - len(part)) if tuple(text[i:i + len(part)]) == part]


@pytest.mark.parametrize("letters", [1, 2, 5])
def test_suffixes_and_what_followed_them_agree_with_brute_force(built, letters):
    rng = random.Random(letters)
    documents = corpus(rng, 12, letters)
    store = built(documents)
    for _ in range(60):
        tokens = tuple(rng.randrange(letters + 1) for _ in range(rng.randrange(1, 30)))
        followed = [occurrences(documents, tokens[-n:]) for n in range(len(tokens), 0, -1)]
        known = [(n, seen) for n, seen in zip(range(len(tokens), 0, -1), followed, strict=True) if seen]
        longest = [(n, seen) for i, (n, seen) in enumerate(known) if not i or len(seen) > len(known[i - 1][1])]
        found = list(store.suffixes(tokens))
        assert [(n, store.count(state)) for n, state in found] == [(n, len(seen)) for n, seen in longest]
        for (n, state), (_, seen) in zip(found, longest, strict=True):
            ranked = list(store.ranked(state))
            assert {token: times for times, token, _ in ranked} == {token: seen.count(token) for token in seen}
            assert [times for times, *_ in ranked] == sorted((times for times, *_ in ranked), reverse=True)
            for times, token, after in ranked:
                assert store.count(after) == times
                if token != END:
                    there = {one: count for count, one, _ in store.ranked(after)}
                    wanted = occurrences(documents, (*tokens[-n:], token))
                    assert there == {one: wanted.count(one) for one in wanted}


def test_of_many_occurrences_a_sample_is_counted(built):
    store = built([[1, 2, 1, 2, 1, 3] * 2000])
    (_, state), = [one for one in store.suffixes((9, 1)) if one.length == 1]
    assert len(state) == 6000
    assert COUNTED // 2 < store.count(state) <= COUNTED
    (often, token, _), (seldom, other, _) = store.ranked(state)
    assert (token, other) == (2, 3)
    assert often + seldom == store.count(state)
    assert often / (often + seldom) == pytest.approx(2 / 3, abs=0.05)


def test_a_match_is_found_up_to_sixty_four_tokens(built):
    documents = [list(range(100)), [9, *range(30, 100)], [7] * 150]
    store = built(documents)
    for tokens in (tuple(range(90)), tuple(range(20, 64)), (7,) * 100, (7,) * 63, tuple(range(36, 100))):
        assert store.find(tokens) == by_brute_force(documents, tokens)
    assert store.find(tuple(range(90))).length == 64


def test_a_continuation_stops_at_the_end_of_its_document(built):
    store = built([[1, 2, 3, 4], [5, 6]])
    assert store.following(store.find((1, 2)).first, 8) == (3, 4)
    assert store.following(store.find((5,)).first, 8) == (6,)
    assert store.following(store.find((6,)).first, 8) == ()
    assert store.following(0, 2) == (1, 2)


def test_nothing_is_found_for_an_unknown_or_missing_token(built):
    store = built([[1, 2, 3]])
    assert store.find((1, 2, 9)) == CorpusMatch()
    assert store.find(()) == CorpusMatch()


@pytest.mark.parametrize("text", [[7] * 150, [1, 2] * 60 + [1, 1], [3, *range(20)] * 6, [5]],
                         ids=["one letter", "two", "a period of 21", "one token"])
def test_contexts_are_sorted_by_sixty_four_tokens_then_by_position(text):
    order = context_order(np.array(text))
    assert order.tolist() == sorted(range(len(text)), key=lambda i: (text[i:i + 64], i))


def test_a_hundred_thousand_tokens_are_found_again(built):
    rng = random.Random(1)
    text = [min(int(rng.expovariate(0.01)), 49151) for _ in range(100_000)]
    store = built([text[:50_000], text[50_000:]])
    for _ in range(300):
        position = rng.randrange(40, 49_000)
        found = store.find(tuple(text[position - 40:position]))
        assert found.length >= 40
        assert store.following(found.recent, 5) == tuple(text[position:position + 5])


@pytest.mark.parametrize("damage", [
    lambda data: data[:-1], lambda data: data + b"\0", lambda data: b"", lambda data: b"x" + data[1:],
    lambda data: data[:HEADER + 3] + bytes([data[HEADER + 3] ^ 1]) + data[HEADER + 4:],
    lambda data: json.dumps({"magic": "specdec-static-store-1"}).ljust(HEADER).encode() + data[HEADER:],
    lambda data: json.dumps(["no", "header"]).ljust(HEADER).encode() + data[HEADER:],
    lambda data: json.dumps({"magic": "specdec-static-store-1", "tokens": 0, "vocab": 0, "crc32": 0}
                            ).ljust(HEADER).encode()],
    ids=["cut", "longer", "empty", "header", "one bit", "no size", "no mapping", "no tokens"])
def test_a_damaged_store_is_refused(tmp_path, damage):
    path = tmp_path / "store"
    build_store(path, [[1, 2, 3, 1, 2]])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Refusal, match="build it again"):
        StaticStore(path)


def test_a_missing_store_is_refused_by_name(tmp_path):
    for opener in (StaticStore, open_store):
        with pytest.raises(Refusal, match="nowhere"):
            opener(tmp_path / "nowhere")


@pytest.mark.parametrize("documents", [[], [[]], [[-1, 2]], [[2**32]]], ids=str)
def test_a_corpus_without_proper_tokens_is_refused(tmp_path, documents):
    with pytest.raises(Refusal, match="corpus"):
        build_store(tmp_path / "store", documents)


def test_an_interrupted_build_leaves_the_older_store_unchanged(tmp_path):
    path = tmp_path / "store"
    build_store(path, [[1, 2, 3]])
    before = path.read_bytes()

    def die(share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_store(path, [[4, 4, 4, 5]], progress=die)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["store"]


def test_a_full_disk_is_refused_and_leaves_no_file(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Refusal, match="disk is full"):
        build_store(tmp_path / "store", [[1, 2]])
    assert os.listdir(tmp_path) == []


def test_progress_rises_to_one(tmp_path):
    shares = []
    build_store(tmp_path / "store", [[1, 2] * 200], progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 3


def test_several_processes_read_one_store_at_once(tmp_path):
    path = tmp_path / "store"
    build_store(path, [[3, 1, 4, 1, 5, 9, 2, 6]])
    ask = (f"from specdec_lib.index.static_store import open_store; s = open_store({str(path)!r});"
           "print(s.following(s.find((4, 1)).first, 3))")
    run = [sys.executable, "-c", ask]
    readers = [subprocess.Popen(run, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    mine = open_store(path)
    assert [reader.communicate()[0].strip() for reader in readers] == ["(5, 9, 2)"] * 2
    assert mine.following(mine.find((4, 1)).first, 3) == (5, 9, 2)


def test_a_rebuilt_store_is_opened_again(tmp_path):
    path = tmp_path / "store"
    build_store(path, [[1, 2]])
    assert open_store(path) is open_store(path)
    build_store(path, [[1, 3, 3]])
    assert open_store(path).following(open_store(path).find((1,)).first, 2) == (3, 3)
