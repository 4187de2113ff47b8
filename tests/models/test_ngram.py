"""The n-gram as a judge and as a language model."""

from itertools import product

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from specdec_lib.exact import distance, every_outcome
from specdec_lib.loop import decode
from specdec_lib.models.ngram import Ngram
from specdec_lib.sampling import Sampling
from specdec_lib.training.data.ngram_counts import count_ngrams
from specdec_lib.types import NO_DICE, ROOT, Draft, Method, Refusal
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.fixed import Fixed
from tests.worlds import PROMPT, TARGET, kit, run, true_law

VOCAB = 12
TEXT = [(0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 5), (2, 3, 0, 1, 2, 3, 6, 0, 7), (5, 0, 1, 2, 3, 3, 3, 3), (8, 9, 8, 9, 8)]
ARRAYS = count_ngrams(TEXT, VOCAB)
MODEL = Ngram(ARRAYS)
EVERY = np.arange(VOCAB)
SEEN, HALF, UNSEEN, SHORT = (0, 1), (9, 1), (10, 11), (1,)     # HALF: its last token was seen, the pair was not


@pytest.fixture(scope="module")
def small() -> Ngram:
    """An n-gram of the table world: every path of four tokens that its target finds likely, as often as it does."""
    texts = [path for path in product(range(3), repeat=4) for _ in range(round(400 * chance_of(path)))]
    return Ngram(count_ngrams(texts, 3))


def chance_of(path) -> float:
    return float(np.prod([TARGET.logits(path[:i]).exp()[token] for i, token in enumerate(path)]))


@pytest.mark.parametrize("context", [SEEN, HALF, UNSEEN, SHORT, ()])
def test_every_distribution_sums_to_one(context):
    assert np.exp(MODEL.logp(context, EVERY)).sum() == pytest.approx(1, abs=1e-12)
    assert np.exp(MODEL.row(context).astype(np.float64)).sum() == pytest.approx(1, abs=1e-6)


def test_after_an_unseen_pair_the_bigram_of_its_last_token_decides():
    assert MODEL.logp(HALF, EVERY).tolist() == MODEL.logp(SHORT, EVERY).tolist()
    assert MODEL.logp(UNSEEN, EVERY).tolist() == MODEL.logp((), EVERY).tolist()
    assert MODEL.logp(SEEN, EVERY).tolist() != MODEL.logp(SHORT, EVERY).tolist()


def test_coarsely_rounded_shares_still_sum_to_one():
    rounded = {name: np.floor(a * 64) / 64 if "mass" in name else a for name, a in ARRAYS.items()}
    assert np.exp(Ngram(rounded).logp(SEEN, EVERY)).sum() == pytest.approx(1, abs=1e-12)


def test_only_the_last_two_tokens_count():
    assert MODEL.logp((7, 7, 7, 0, 1), EVERY).tolist() == MODEL.logp(SEEN, EVERY).tolist()
    assert MODEL.best((7, 7, 7, 0, 1)) == MODEL.best((0, 1)) == 2


def test_a_batch_equals_single_calls():
    contexts = [SEEN, HALF, UNSEEN, (-1, 1)]
    tokens = np.array([[2, 3], [2, 11], [0, 1], [2, 5]])
    batch = MODEL.logp_batch(torch.tensor(contexts), torch.from_numpy(tokens))
    assert batch.tolist() == [MODEL.logp(context, row).tolist() for context, row in zip(contexts, tokens, strict=True)]
    assert MODEL.logp_batch(np.array([contexts] * 3), np.array([tokens] * 3)).tolist() == [batch.tolist()] * 3


def test_a_context_without_a_last_token_is_an_empty_one():
    model = Ngram(count_ngrams([(0, 3, 2)] * 2, 4))            # (1, NOTHING) must not be read as (0, 3)
    assert model.logp((1, -1), np.arange(4)).tolist() == model.logp((), np.arange(4)).tolist()


def test_rows_of_logits_follow_the_context_and_each_node():
    draft = Draft((2, 7, 3), (ROOT, ROOT, 0))
    scores = MODEL((5, 0, 1), draft)
    ends = [(0, 1), (1, 2), (1, 7), (2, 3)]
    for row, end in zip(scores.logits, ends, strict=True):
        assert np.abs(row.numpy() - MODEL.logp(end, EVERY)).max() < 1e-6
    assert scores.best == tuple(MODEL.best(end) for end in ends)


def test_greedy_output_drafted_by_an_ngram_is_plain_decoding(small):
    greedy = Sampling()
    plain = run(Method(Fixed(0), DraftModel(small), kit(greedy).part("rejection")), NO_DICE, greedy, tokens=9)
    *_, last = decode(PROMPT, TARGET, Fixed(3), DraftModel(small), kit(greedy).part("rejection"), max_new_tokens=9)
    assert last.output == plain
    assert len(last.rounds) < 9
    assert sum(len(round.verdict.path) for round in last.rounds) > 0


def test_sampled_output_drafted_by_an_ngram_keeps_the_target_distribution(small):
    method = Method(Fixed(2), DraftModel(small), kit().part("rejection"))
    dist = every_outcome(lambda dice: run(method, dice))
    assert distance(dist, true_law()) < 1e-6                   # its rows are float32


def test_an_ngram_comes_back_from_its_file_as_it_was(tmp_path):
    save_file(ARRAYS, tmp_path / "model.safetensors")
    again = Ngram.load(tmp_path / "model.safetensors")
    assert again.logp(SEEN, EVERY).tolist() == MODEL.logp(SEEN, EVERY).tolist()
    assert Ngram({name: torch.from_numpy(a) for name, a in ARRAYS.items()}).best(SEEN) == MODEL.best(SEEN)


def test_a_truncated_or_missing_file_is_refused_in_a_sentence(tmp_path):
    file = tmp_path / "model.safetensors"
    with pytest.raises(Refusal, match="there is no n-gram at"):
        Ngram.load(file)
    save_file(ARRAYS, file)
    for size in (file.stat().st_size - 1, 40, 0):
        file.write_bytes(file.read_bytes()[:size])
        with pytest.raises(Refusal, match="is not a whole n-gram"):
            Ngram.load(file)


@pytest.mark.parametrize("wrong", [{"unigram": np.zeros(0)}, {"bigram.sizes": ARRAYS["bigram.sizes"][:-1]},
                                   {"trigram.mass": ARRAYS["trigram.mass"][1:]}, {"unigram": ARRAYS["unigram"] * 0},
                                   {"bigram.tokens": ARRAYS["bigram.tokens"] + 99},
                                   {"bigram.tokens": ARRAYS["bigram.tokens"].astype(np.int32) - 1},
                                   {"bigram.sizes": np.array([-1, 1 + len(ARRAYS["bigram.tokens"]), *[0] * 10])}])
def test_arrays_that_contradict_each_other_are_refused(wrong):
    with pytest.raises(Refusal, match="not an n-gram's"):
        Ngram(ARRAYS | wrong)


def test_ids_outside_the_vocabulary_are_refused():
    for context, token in (((0, VOCAB), 0), ((0, 1), VOCAB), ((0, 1), -1)):
        with pytest.raises(ValueError, match="token ids 0 to 11"):
            MODEL.logp(context, np.array([token]))


def test_an_ngram_has_neither_features_nor_layers():
    with pytest.raises(Refusal, match="no hidden states"):
        MODEL.features((0, 1))
    with pytest.raises(Refusal, match="no layers"):
        MODEL.exit(1)
