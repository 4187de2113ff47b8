"""The path search in C finds the paths of lattice.py, whose functions are its definition."""

import numpy as np
import pytest
import torch

from specdec_lib import lattice
from specdec_lib.lattice import PathRules
from specdec_lib.models import path_beams
from specdec_lib.models.ngram import Ngram
from specdec_lib.models.path_beams import compiled_search, find_paths, found_in_c, found_in_numpy
from specdec_lib.training.data.ngram_counts import count_ngrams
from specdec_lib.types import Lattice, Refusal

VOCAB = 12
TEXTS = [tuple(np.random.default_rng(seed).integers(0, VOCAB, 40).tolist()) for seed in range(5)]
RULES = [PathRules(), PathRules(mass=1, score="sum"), PathRules(beam=1), PathRules(cap=1), PathRules(mass=.01),
         PathRules(weight=.05, beam=9), PathRules(mass=.3, keep_end=False, score="accepted"),
         PathRules(weight=1, beam=64)]


def world(seed: int, slots: int = 6, top: int = 8) -> Lattice:
    """The best tokens of random distributions, as the drafters give them, some of them impossible."""
    logits = torch.randn(slots, VOCAB, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
    logits[:, :3] = -torch.inf
    best = torch.log_softmax(logits, -1).topk(top)
    return Lattice(best.indices, best.values)


def compiled():
    run = compiled_search()
    assert run is not None, "these tests need a C compiler"
    return run


@pytest.fixture(scope="module")
def trigram() -> Ngram:
    return Ngram(count_ngrams(TEXTS, VOCAB))


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("known", [True, False])
def test_it_finds_the_paths_counts_and_statistics_of_the_definition(trigram, rules, known):
    proxy, ended = trigram if known else None, 0
    for seed in range(60):
        raw, context = world(seed, slots=1 + seed % 8, top=1 + seed % 11), TEXTS[seed % 5][:seed % 4]
        end = frozenset({seed % VOCAB, VOCAB - 1}) if seed % 3 else frozenset()
        found = found_in_c(compiled(), raw, context, end, proxy, rules)
        wanted = found_in_numpy(raw, context, end, proxy, rules)
        assert [path.tokens for path in found.paths] == [path.tokens for path in wanted.paths]
        assert [path.logp for path in found.paths] == [path.logp for path in wanted.paths]
        assert [path.score for path in found.paths] == pytest.approx([path.score for path in wanted.paths], rel=1e-12)
        assert found.kept == wanted.kept
        assert np.array(found.slots) == pytest.approx(np.array(wanted.slots), rel=1e-9, abs=1e-12)
        ended += len(found.kept) < len(raw.ids)
    assert ended > 5


def test_a_trigram_without_any_pair_gives_the_unigrams_probabilities():
    empty, raw = Ngram(count_ngrams([(token,) for token in range(VOCAB)], VOCAB)), world(4)
    assert not len(empty.bigram.tokens)
    found = found_in_c(compiled(), raw, (1, 2), frozenset(), empty, PathRules())
    assert found.paths[0].tokens == found_in_numpy(raw, (1, 2), frozenset(), empty, PathRules()).paths[0].tokens


def test_equally_good_paths_stay_in_order():
    raw = Lattice(torch.tensor([[3, 1, 2]] * 3), torch.full((3, 3), 1 / 3, dtype=torch.float64).log())
    rules = PathRules(mass=1, beam=7)
    found = found_in_c(compiled(), raw, (), frozenset(), None, rules).paths
    assert [path.tokens for path in found] == [path.tokens for path in lattice.search(raw, (), beam=7)]
    assert found[0].tokens == (3, 3, 3)


def test_an_id_outside_the_trigrams_vocabulary_is_an_error_and_not_read(trigram):
    raw = Lattice(torch.tensor([[VOCAB]]), torch.zeros(1, 1, dtype=torch.float64))
    for context, ids in (((1, 2), raw.ids), ((1, VOCAB), torch.tensor([[0]]))):
        with pytest.raises(ValueError, match="knows the token ids 0 to 11"):
            found_in_c(compiled(), Lattice(ids, raw.logp), context, frozenset(), trigram, PathRules())


@pytest.mark.parametrize("rules", [PathRules(beam=0), PathRules(cap=0), PathRules(mass=0), PathRules(weight=2),
                                   PathRules(score="best")], ids=str)
def test_impossible_rules_are_refused_and_not_searched(rules):
    with pytest.raises(Refusal, match="must be"):
        find_paths(world(1), (), frozenset(), None, rules)


@pytest.mark.parametrize("case", ["no compiler", "another proxy", "many beams", "many candidates"])
def test_where_the_code_does_not_fit_numpy_searches(monkeypatch, trigram, case):
    class Flat:
        def logp_batch(self, contexts, tokens):
            return np.zeros(tokens.shape)

    raw, rules, proxy = world(1), PathRules(), trigram
    if case == "no compiler":
        monkeypatch.setattr(path_beams, "compiled_search", lambda: None)
    monkeypatch.setattr(path_beams, "found_in_c", lambda *_: pytest.fail("the C code was called"))
    if case == "another proxy":
        proxy = Flat()
    if case == "many beams":
        rules = PathRules(beam=65)
    if case == "many candidates":
        raw = Lattice(torch.arange(65)[None] % VOCAB, torch.full((1, 65), 1 / 65, dtype=torch.float64).log())
    found = find_paths(raw, TEXTS[0], frozenset(), proxy, rules)
    assert found == found_in_numpy(raw, TEXTS[0], frozenset(), proxy, rules)


def test_a_lattice_without_slots_has_one_empty_path(trigram):
    raw = Lattice(torch.zeros(0, 8, dtype=torch.int64), torch.zeros(0, 8, dtype=torch.float64))
    found = found_in_c(compiled(), raw, (1, 2), frozenset(), trigram, PathRules())
    assert found == found_in_numpy(raw, (1, 2), frozenset(), trigram, PathRules())
    assert [path.tokens for path in found.paths] == [()]
