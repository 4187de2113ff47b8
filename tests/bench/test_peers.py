"""transformers as a peer, on a random Llama of two layers."""

import pytest
import torch

from specdec_lib.bench import peers
from specdec_lib.sampling import Sampling
from specdec_lib.types import Refusal

IDS = (5, 6, 7, 5, 6)
OF_TRANSFORMERS = ("hf-generate", "hf-prompt-lookup", "hf-assisted")


@pytest.fixture(scope="module")
def model():
    return random_llama(32)


def random_llama(vocab: int):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=vocab, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=1, bos_token_id=None, eos_token_id=None)
    return LlamaForCausalLM(config).eval()


def read(model):
    return lambda folder, dtype, device: model


def load(names, model, end=frozenset(), draft=None, **more):
    return peers.load_peers(names, "tiny", torch.float32, "cpu", end, draft=draft, read=read(model), **more)


def greedy(model, tokens: int) -> tuple[int, ...]:
    ids = list(IDS)
    for _ in range(tokens):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[len(IDS):])


def test_every_peer_gives_the_greedy_tokens_and_counts_its_forwards(model):
    plain, lookup, assisted = (peer(IDS, 9) for peer in load(OF_TRANSFORMERS, model, draft="tiny"))
    assert plain.tokens == lookup.tokens == assisted.tokens == greedy(model, 9)
    assert plain.forwards == plain.bought == 8     # prefill emits the first token, each of the others takes a forward
    assert assisted.forwards < 16
    assert lookup.forwards <= 8
    assert plain.prefill > 0
    assert plain.seconds >= 0


def test_a_peer_stops_at_the_first_end_token_and_counts_it(model):
    wanted = greedy(model, 9)
    end = frozenset({wanted[3]})
    stop = wanted.index(wanted[3]) + 1
    for peer in load(("hf-generate", "hf-prompt-lookup"), model, end):
        assert peer(IDS, 9).tokens == wanted[:stop]
    assert peers.up_to_end((1, 2, 3, 2), frozenset({2})) == (1, 2)


def test_a_peer_stays_within_the_context(model):
    peer, = load(("hf-generate",), model, context=8)
    assert len(peer(IDS, 9).tokens) == 3


def test_what_an_assistant_learnt_in_one_call_is_forgotten_before_the_next(model):
    peer, = load(("hf-assisted",), model, draft="tiny")
    model.generation_config.num_assistant_tokens, model.generation_config.assistant_confidence_threshold = 19, 0.7
    peer.options(4)
    for name, value in peers.ASSISTED.items():
        assert getattr(model.generation_config, name) == value


def test_hooks_are_taken_off_again(model):
    peer, = load(("hf-generate",), model)
    peer(IDS, 2)
    assert not model._forward_pre_hooks


def test_sampled_peers_repeat_themselves_with_the_same_seed(model):
    peer, = load(("hf-generate",), model, sampling=Sampling(1.0))
    assert peer(IDS, 9, seed=1).tokens == peer(IDS, 9, seed=1).tokens != peer(IDS, 9, seed=2).tokens


@pytest.mark.parametrize("one_token", [Sampling(1.0, top_k=1), Sampling(1.0, top_p=1e-6)])
def test_peers_sample_with_the_filters_of_the_run(model, one_token):
    for peer in load(OF_TRANSFORMERS, model, draft="tiny", sampling=one_token):
        assert peer(IDS, 9, seed=1).tokens == greedy(model, 9)


def test_unknown_peers_and_missing_draft_models_are_refused():
    with pytest.raises(Refusal, match="hf-generate, hf-prompt-lookup, hf-assisted"):
        peers.check_peers(("vllm",), None)
    with pytest.raises(Refusal, match="--draft"):
        peers.check_peers(("hf-assisted",), None)


def test_an_assistant_with_a_vocabulary_of_another_size_is_refused_before_transformers_does(model):
    found = {"tiny": model, "padded": random_llama(40)}
    with pytest.raises(Refusal, match="the target has 32 tokens and the draft model 40: leave hf-assisted out"):
        peers.load_peers(OF_TRANSFORMERS, "tiny", torch.float32, "cpu", frozenset(), draft="padded",
                         read=lambda folder, dtype, device: found[folder])
