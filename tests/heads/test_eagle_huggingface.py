"""EAGLE heads for models that transformers runs: greedy and matched output, chains, stored heads."""

import pytest
import torch
import transformers

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import CheckpointFolder, save_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.dice import Dice
from specdec_lib.heads.eagle import EagleHead, eagle_head
from specdec_lib.loop import decode
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.sampling import Sampling
from specdec_lib.types import NO_DICE, Draft, Refusal
from tests.heads.eagle_head import far
from tests.worlds import random_eagle

NEOX = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 7,
        "initializer_range": .35, "bos_token_id": 0, "eos_token_id": 0, "max_position_embeddings": 256}
PROMPTS = ((1, 2), (3, 1, 4, 1, 5), (6, 6, 6, 2, 0, 3, 5))


def transformers_target(config) -> HuggingFace:
    """A random model of seven tokens that transformers runs, so that a random head is right now and then."""
    torch.manual_seed(0)
    return HuggingFace(transformers.AutoModelForCausalLM.from_config(config).double().eval())


@pytest.fixture(scope="module")
def neox():
    return transformers_target(transformers.GPTNeoXConfig(**NEOX))


@pytest.fixture(scope="module")
def bloom():
    return transformers_target(transformers.BloomConfig(hidden_size=32, n_layer=3, n_head=4, vocab_size=7,
                                                        initializer_range=.6))


def decoded(target, spec, prompt, sampling=None, tokens=40):
    """The last session of a decode with the head of random weights, on an empty cache."""
    target = target.fresh()
    kit = Kit(target, TokenizerFacts(vocab=7), sampling, checkpoints=heads_for(target), parts=catalog.make_part)
    *_, last = decode(prompt, target, *catalog.build(spec, kit), max_new_tokens=tokens, sampling=sampling,
                      dice=NO_DICE if sampling is None else Dice(5))
    return last


def heads_for(target, taps=(1, 2, 3)) -> dict:
    return {"eagle": random_eagle(target.shape, taps, tuple(range(7)), seed=6)}


def hits(sessions) -> int:
    return sum(len(round.verdict.path) for last in sessions for round in last.rounds)


@pytest.mark.parametrize("spec", ["eagle(depth=3)", "eagle2(depth=3, width=2, nodes=6)"])
def test_on_a_model_that_transformers_runs_greedy_output_is_that_of_plain_decoding(neox, spec):
    sessions = [decoded(neox, spec, prompt) for prompt in PROMPTS]
    assert [last.output for last in sessions] == [decoded(neox, "ar", prompt).output for prompt in PROMPTS]
    drafted = sum(len(round.draft) for last in sessions for round in last.rounds)
    assert 40 < hits(sessions) < drafted


@pytest.mark.parametrize("spec", ["eagle(depth=3)@match", "eagle2(depth=3, width=2, nodes=6)@match"])
def test_on_a_model_that_transformers_runs_matched_samples_are_those_of_plain_decoding(neox, spec):
    warm = Sampling(temperature=1.0)
    sessions = [decoded(neox, spec, prompt, warm) for prompt in PROMPTS]
    assert [last.output for last in sessions] == [decoded(neox, "ar@match", prompt, warm).output for prompt in PROMPTS]
    assert hits(sessions) > 40
    assert all(last.output != decoded(neox, "ar", last.tokens[:last.prompt]).output for last in sessions)


def test_a_model_that_takes_no_trees_is_drafted_for_in_chains_and_refuses_trees(bloom):
    sessions = [decoded(bloom, "eagle(depth=3)", prompt) for prompt in PROMPTS]
    assert [last.output for last in sessions] == [decoded(bloom, "ar", prompt).output for prompt in PROMPTS]
    assert hits(sessions) > 0
    with pytest.raises(Refusal, match="takes chains only"):
        decoded(bloom, "eagle2(depth=3, width=2, nodes=6)", PROMPTS[0])


def test_drafting_for_a_model_that_transformers_runs_costs_it_no_forward(neox):
    target = neox.fresh()
    kit = Kit(target, TokenizerFacts(vocab=7), checkpoints=heads_for(target), parts=catalog.make_part)
    *_, last = decode(PROMPTS[1], target, *catalog.build("eagle(depth=3)", kit), max_new_tokens=30)
    assert target.forwards == 1 + len(last.rounds)


def test_earlier_rounds_do_not_change_a_draft_for_a_model_that_transformers_runs(neox, rounds):
    def small(tokens, draft):
        return tuple(token % 7 for token in tokens), Draft(tuple(token % 7 for token in draft.tokens), draft.parents)

    state, target = heads_for(neox)["eagle"].state, neox.fresh()
    head = EagleHead(state, (1, 2, 3), target)
    for tokens, draft in (small(*round) for round in rounds(seed=4, rounds=20, chain=True)):
        new = neox.fresh()
        assert far(head(tokens, draft).logits, EagleHead(state, (1, 2, 3), new)(tokens, draft).logits) < 1e-10
        target(tokens, draft)


def stored_head(target, folder) -> CheckpointFolder:
    """A folder with a random head for this target, as a fresh copy of the target reads it."""
    made = heads_for(target)["eagle"]
    card = {"target": "mine", "made": {}, "settings": {}, "measured": {}, "limits": []}
    save_checkpoint(folder, "eagle", made.state, made.meta, card, {"ids": "int32", "norm": "float32"}, target.weights,
                    fingerprint(target, None))
    return CheckpointFolder(folder, target.fresh(), name="mine")


def test_a_stored_head_is_read_again_for_the_same_model_and_refused_for_another_width_or_family(neox, bloom, tmp_path):
    there = stored_head(neox, tmp_path)
    assert eagle_head(there["eagle"], neox.fresh())(PROMPTS[0], Draft()).logits.shape == (1, 7)
    wide = transformers_target(transformers.GPTNeoXConfig(**NEOX | {"hidden_size": 48}))
    for other in (wide, bloom, Transformer.random(neox.shape)):
        with pytest.raises(Refusal, match="mine has another architecture"):
            CheckpointFolder(tmp_path, other, name="mine")["eagle"]
    with pytest.raises(Refusal, match=r"the checkpoint's fc has the shape \(32, 96\), this target needs \(48, 144\)"):
        eagle_head(there["eagle"], wide.fresh())


def test_another_seed_of_a_model_that_transformers_runs_is_other_weights_and_a_warning(neox, tmp_path):
    stored_head(neox, tmp_path)
    torch.manual_seed(1)
    other, said = HuggingFace(transformers.AutoModelForCausalLM.from_config(neox.model.config)), []
    CheckpointFolder(tmp_path, other, name="mine", warn=said.append)["eagle"]
    CheckpointFolder(tmp_path, neox, name="mine", warn=said.append)["eagle"]
    assert ["other weights than mine" in line for line in said] == [True]


def test_heads_for_a_model_that_transformers_runs_are_packed_once(neox):
    checkpoint = heads_for(neox)["eagle"]
    assert eagle_head(checkpoint, neox.fresh()).weights is eagle_head(checkpoint, neox.fresh()).weights
