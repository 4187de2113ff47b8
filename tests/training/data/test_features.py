"""Features are the target's hidden states and distributions, stored on disk once, complete, up to the limit."""

from types import SimpleNamespace

import pytest
import torch

from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data import features
from specdec_lib.training.data.examples import Example, learned_from
from specdec_lib.training.data.features import TOP, Features, text_features
from specdec_lib.types import Draft
from tests.training.other_target import other_target
from tests.training.tiny import tiny_examples, tiny_target

LEVELS = (1, 2, 4)                                 # 4 is the last: the normed stream before the head
GROUP = (0, 2, 1)


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture
def data():
    return tiny_examples(4)


def same(one, other) -> bool:
    return (torch.equal(one.tokens, other.tokens) and torch.equal(one.start, other.start)
            and torch.equal(one.stop, other.stop) and torch.equal(one.top_ids, other.top_ids)
            and torch.equal(one.top_logp, other.top_logp) and one.streams.keys() == other.streams.keys()
            and all(torch.equal(one.streams[level], other.streams[level]) for level in one.streams))


def test_hidden_states_are_the_targets_features(target, data):
    batch = Features(target, data, LEVELS, None)(GROUP, LEVELS)
    for b, i in enumerate(GROUP):
        lm = target.fresh()
        lm.tap(LEVELS)
        lm.prefill(data[i].tokens)
        expected = lm.features(data[i].tokens)
        for place, level in enumerate(LEVELS):
            assert torch.allclose(batch.streams[level][b, :len(data[i])], expected[:, place], atol=1e-6)
            assert (batch.streams[level][b, len(data[i]):] == 0).all()


@pytest.mark.parametrize("levels", [LEVELS, (1, 2), ()])
@pytest.mark.parametrize("rows", [3, 512])
def test_distributions_of_the_answer_are_the_top_tokens_of_the_full_forward(target, data, rows, levels, monkeypatch):
    monkeypatch.setattr(features, "ROWS", rows)
    batch = Features(target, data, levels, None)(GROUP)
    for b, i in enumerate(GROUP):
        for row in range(len(data[i].prompt) - 1, len(data[i])):
            logp = target.fresh()(data[i].tokens[:row + 1], Draft()).logits[0].log_softmax(-1)
            best = logp.topk(TOP)
            assert torch.equal(batch.top_ids[b, row], best.indices)
            assert torch.allclose(batch.top_logp[b, row], best.values, rtol=2e-3)      # kept in half precision


def test_distributions_are_those_of_the_full_forward_of_a_model_that_transformers_runs(data):
    other = other_target()
    batch = Features(other, data, LEVELS, None)(GROUP)
    for b, i in enumerate(GROUP):
        for row in range(len(data[i].prompt) - 1, len(data[i])):
            best = other.fresh()(data[i].tokens[:row + 1], Draft()).logits[0].log_softmax(-1).topk(TOP)
            assert torch.equal(batch.top_ids[b, row], best.indices)
            assert torch.allclose(batch.top_logp[b, row], best.values, rtol=2e-3)


def test_distributions_of_the_prompt_are_zero(target, data):
    batch = Features(target, data, LEVELS, None)(GROUP)
    for b in range(len(GROUP)):
        assert (batch.top_logp[b, :batch.start[b] - 1] == 0).all()
        assert (batch.top_logp[b, batch.start[b] - 1:batch.stop[b]] < 0).all()


def test_an_answer_without_a_prompt_has_its_distributions(target):
    batch = Features(target, [Example((), (1, 2, 3, 4))], LEVELS, None)((0,))
    assert (batch.top_logp < 0).all()


def test_a_vocabulary_smaller_than_what_is_kept_is_kept_whole():
    small = text_features(tiny_target(vocab=10), (1, 2, 3), (1,))
    assert small["top_ids"].shape == (3, 10)
    assert torch.allclose(small["top_logp"].float().exp().sum(-1), torch.ones(3), atol=2e-3)


def test_a_batch_has_the_requested_levels_alone(target, data):
    made = Features(target, data, LEVELS, None)
    assert not made((0, 1)).streams
    assert set(made((0, 1), (4, 1)).streams) == {1, 4}


def test_tokens_starts_and_stops_are_those_of_the_examples(target, data):
    batch = Features(target, data, LEVELS, None)(GROUP)
    for b, i in enumerate(GROUP):
        assert batch.tokens[b, :batch.stop[b]].tolist() == list(data[i].tokens)
        assert batch.tokens[b, :batch.start[b]].tolist() == list(data[i].prompt)


def test_a_batch_is_on_the_device_of_the_target_whose_distributions_stay_on_disk(target, data, tmp_path):
    made = Features(target, data, LEVELS, tmp_path)
    made(GROUP)
    elsewhere = SimpleNamespace(device=torch.device("meta"), dtype=target.dtype)
    there = Features(elsewhere, data, LEVELS, tmp_path)(GROUP, LEVELS)
    parts = there.tokens, there.start, there.stop, there.top_ids, there.top_logp, *there.streams.values()
    assert {part.device.type for part in parts} == {"meta"}


def test_streams_can_be_learned_from(target, data):
    weight = torch.ones((), requires_grad=True)
    (Features(target, data, LEVELS, None)((0,), (2,)).streams[2] * weight).pow(2).sum().backward()
    assert weight.grad > 0


def test_features_are_computed_once_and_read_back_the_same(target, data, tmp_path):
    first, folder = Features(target, data, LEVELS, tmp_path / "kept"), tmp_path / "kept"
    made = first(GROUP, LEVELS)
    assert first.computed == sum(len(data[i]) for i in GROUP)
    again = Features(target, data, LEVELS, folder)
    assert same(again(GROUP, LEVELS), made)
    assert same(first(GROUP, LEVELS), made)
    assert again.computed == 0
    assert first.computed == sum(len(data[i]) for i in GROUP)
    assert again.written == first.written == sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("left", [0, 5, 200])
def test_a_file_cut_short_is_computed_again_and_written_whole(target, data, tmp_path, left):
    made = Features(target, data, LEVELS, tmp_path)(GROUP, LEVELS)
    path, = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:left])
    again = Features(target, data, LEVELS, tmp_path)
    assert same(again(GROUP, LEVELS), made)
    assert again.computed > 0
    last = Features(target, data, LEVELS, tmp_path)
    assert same(last(GROUP, LEVELS), made)
    assert last.computed == 0


def test_a_file_with_a_flipped_byte_is_computed_again(target, data, tmp_path):
    made = Features(target, data, LEVELS, tmp_path)(GROUP, LEVELS)
    path, = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[-9] ^= 64
    path.write_bytes(content)
    again = Features(target, data, LEVELS, tmp_path)
    assert same(again(GROUP, LEVELS), made)
    assert again.computed > 0


def test_a_writer_that_is_killed_leaves_no_batch_behind(target, data, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("specdec_lib.files.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            Features(target, data, LEVELS, tmp_path)(GROUP)
    assert not list(tmp_path.glob("*.safetensors"))
    again = Features(target, data, LEVELS, tmp_path)
    again(GROUP)
    assert again.computed > 0
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_beyond_the_limit_nothing_more_is_written(target, data, tmp_path):
    made = Features(target, data, LEVELS, tmp_path, limit=1)
    made((0,))
    assert len(list(tmp_path.iterdir())) == 1      # the batch that reaches the limit is the last
    once, size = made((1, 2), LEVELS), made.written
    assert same(made((1, 2), LEVELS), once)
    assert made.written == size
    assert len(list(tmp_path.iterdir())) == 1
    assert made.computed == len(data[0]) + 2 * (len(data[1]) + len(data[2]))


def test_what_an_earlier_run_wrote_counts_towards_the_limit(target, data, tmp_path):
    Features(target, data, LEVELS, tmp_path)((0,))
    Features(target, data, LEVELS, tmp_path, limit=1)((1,))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_target_in_another_dtype_computes_its_own(target, data, tmp_path):
    short = Transformer.random(target.shape, dtype=torch.bfloat16)
    Features(short, data, LEVELS, tmp_path)(GROUP)
    made = Features(target, data, LEVELS, tmp_path)
    assert same(made(GROUP, LEVELS), Features(target, data, LEVELS, None)(GROUP, LEVELS))
    assert made.computed > 0


def test_names_change_with_tokens_levels_grouping_and_where_an_answer_begins(target, data):
    made = Features(target, data, LEVELS, None)
    names = [made.key([data[0], data[1]]), made.key([data[1], data[0]]), made.key([data[0]]),
             Features(target, data, (1, 2), None).key([data[0]]), made.key([learned_from(data[0], 1)])]
    assert len(set(names)) == 5
    assert made.key([data[0]]) == Features(tiny_target(), [], (4, 2, 1), None).key([data[0]])


def test_the_same_model_run_by_transformers_has_the_same_features(checkpoint):
    folder = checkpoint("llama").folder
    one, other = (text_features(lm, tuple(range(40, 60)), (1, 2, 3), 5)
                  for lm in (Transformer.load(folder), HuggingFace.load(folder)))
    assert (one["streams"] - other["streams"]).abs().max() < 1e-4
    assert (one["top_ids"][5:] == other["top_ids"][5:]).float().mean() > .99
    assert torch.allclose(one["top_logp"], other["top_logp"], rtol=2e-3)
