"""A published block drafter says what a plain forward over the whole text says, whatever was drafted before."""

import json
import random

import pytest
import torch
from safetensors.torch import load_file

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.exact import distance, every_outcome
from specdec_lib.heads.block_diffusion import block_head
from specdec_lib.heads.public_block import load_public_block
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.path_attention import has_vectors
from specdec_lib.models.table import Table
from specdec_lib.types import Refusal
from tests.heads.published import HIDDEN, VOCAB, emits_plain_decodings_ids
from tests.heads.published_block import BIASED, CONFIG, IDS, ROWS, WIDE, Plainly, with_own, written
from tests.heads.test_public_eagle import far, random_target
from tests.worlds import PROMPT, WARM, run


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """(our decoder, transformers' model) with the same weights."""
    folder, model = random_target(tmp_path_factory.mktemp("target"), VOCAB)
    return Transformer.load(folder, torch.float64), model


def logp_of(head, tokens, depth=ROWS - 1):
    """The log-probabilities [depth, V] of all tokens, in their order."""
    found = head.lattice(tokens, depth, VOCAB)
    return torch.empty(found.ids.shape, dtype=torch.float64).scatter_(1, found.ids, found.logp.double())


@pytest.mark.parametrize("config", [CONFIG, BIASED, with_own({**CONFIG, "block_size": None}, block_size=ROWS),
                                    {**CONFIG, "model_type": "llama"}, {**CONFIG, "model_type": None}],
                         ids=["as published", "with biases", "block size inside", "a Llama's", "of no family"])
def test_slots_are_those_of_a_plain_forward_over_the_whole_text(config, target, tmp_path, words):
    ours, model = target
    folder = written(tmp_path / "drafter", config)
    published, plain = load_public_block(folder, ours), Plainly(folder, model)
    for length in (1, 2, 3, 12, 510, 600):         # the cache holds 512 rows at first
        tokens = words(length)
        want = plain.logits(tokens).log_softmax(-1)
        head = block_head(published, ours.fresh())
        assert far(logp_of(head, tokens), want) < 1e-9
        block = head(tokens, 3)
        assert block.tokens == tuple(want[:3].argmax(-1).tolist())
        best = want[:3].exp().topk(2).values.tolist()
        entropy = torch.special.entr(want[:3].exp()).sum(-1).tolist()
        for place, stats in enumerate(block.stats):
            told = (*stats, block.confidence[place])
            assert told == pytest.approx((best[place][0], *best[place], entropy[place], best[place][0]), abs=1e-9)
        assert (head.forwards, head.fed) == (2, length - 1)


def test_earlier_rounds_do_not_change_a_block(target, tmp_path, rounds):
    ours, model = target
    folder, dice, beside = written(tmp_path / "drafter"), random.Random(1), ours.fresh()
    plain, head = Plainly(folder, model), block_head(load_public_block(folder, ours), beside)
    for tokens, draft in rounds(seed=3, rounds=14):
        if dice.random() < .6:                     # in the other rounds somebody else drafted
            assert far(logp_of(head, tokens), plain.logits(tokens).log_softmax(-1)) < 1e-9
        beside(tokens, draft)


def test_a_longer_or_shorter_block_has_as_many_masks(target, tmp_path, words):
    ours, model = target
    folder = written(tmp_path / "drafter")
    for block in (1, 3, 9):
        head = block_head(load_public_block(folder, ours), ours.fresh(), block)
        assert far(logp_of(head, words(12), block), Plainly(folder, model, block + 1).logits(words(12))
                   .log_softmax(-1)) < 1e-9
    with pytest.raises(ValueError, match="a block of 9 drafts 1 to 9 tokens, 10 were asked for"):
        head(words(12), 10)
    with pytest.raises(Refusal, match="a block has at least one slot, got 0"):
        block_head(load_public_block(folder, ours), ours.fresh(), 0)
    with pytest.raises(Refusal, match=f"a block of {ours.context + 1} slots does not fit into the target's context"):
        block_head(load_public_block(folder, ours), ours.fresh(), ours.context + 1)


def test_a_model_that_transformers_runs_is_drafted_for_as_well(target, tmp_path, words):
    folder, wrapped = written(tmp_path / "drafter"), HuggingFace(target[1])
    head = block_head(load_public_block(folder, wrapped), wrapped.fresh())
    assert far(logp_of(head, words(12)), Plainly(folder, target[1]).logits(words(12)).log_softmax(-1)) < 1e-9


@pytest.mark.parametrize("config", [CONFIG, WIDE], ids=["torch's attention", "compiled attention"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, "int4"])
def test_other_precisions_draft_nearly_the_same(dtype, config, target, tmp_path, words):
    ours, model = target
    folder = written(tmp_path / "drafter", config)
    model.save_pretrained(tmp_path / "target")
    other = Transformer.load(tmp_path / "target", dtype)
    head, plain = block_head(load_public_block(folder, other), other), Plainly(folder, model)
    found = logp_of(head, words(12))
    assert head.cache.kv.dtype == head.dtype
    assert (head.attention is not None) == (config is WIDE and has_vectors())
    other.prefill(words(12))
    states = other.features(words(12)).double()[:11]             # rounded as the head reads them
    plain.features = lambda tokens: plain.norm("hidden_norm", plain.linear("fc", states.flatten(1)))
    if dtype == "int4":
        assert 0 < far(found, plain.logits(words(12)).log_softmax(-1)) < 2.0
    else:
        bound = 1e-3 if dtype == torch.float32 else .2
        assert far(found, plain.logits(words(12)).log_softmax(-1)) < bound


def test_compiled_attention_follows_rounds_as_well(target, tmp_path, rounds):
    target[1].save_pretrained(tmp_path / "target")
    ours = Transformer.load(tmp_path / "target", torch.float32)
    folder, beside = written(tmp_path / "drafter", WIDE), ours.fresh()
    plain, head = Plainly(folder, target[1]), block_head(load_public_block(folder, ours), beside)
    for tokens, draft in rounds(seed=5, rounds=8, start=505):            # the cache grows meanwhile
        assert far(logp_of(head, tokens), plain.logits(tokens).log_softmax(-1)) < 1e-3
        beside(tokens, draft)


def test_products_of_weights_are_rounded_once(target, tmp_path):
    target[1].save_pretrained(tmp_path / "target")
    half = Transformer.load(tmp_path / "target", torch.bfloat16)
    folder = written(tmp_path / "drafter")
    head, state = block_head(load_public_block(folder, half), half), load_file(folder / "model.safetensors")
    whole = [state[f"layers.{i}.self_attn.{part}_proj.weight"] for i in range(2) for part in "kv"]
    want = (torch.cat(whole) * state["hidden_norm.weight"]).to(torch.bfloat16)
    assert torch.equal(head.network.inject.dense(), want)


def test_weights_are_packed_once_and_the_targets_own_are_shared(target, tmp_path):
    ours = target[0]
    published = load_public_block(written(tmp_path / "drafter"), ours)
    one, other = (block_head(published, ours.fresh()) for _ in range(2))
    assert one.network is other.network
    assert one.cache is not other.cache
    assert one.network.embedding is ours.weights.embedding
    assert one.network.head is ours.weights.head


def of_vocab(vocab, layers=7, ids=IDS):
    return with_own({**CONFIG, "vocab_size": vocab, "num_target_layers": layers}, mask_token_id=vocab - 1,
                    target_layer_ids=list(ids))


def kit_of(target, drafter, sampling=None, vocab=7) -> Kit:
    return Kit(target, TokenizerFacts(vocab=vocab), sampling, checkpoints={"block-diffusion": drafter},
               parts=catalog.make_part)


@pytest.mark.parametrize("spec", ["block-diffusion(depth=4)", "ddtree", "ddtree(linked=False)"])
def test_methods_run_on_it_unchanged_and_emit_plain_decodings_ids(spec, tmp_path):
    small = Transformer.load(random_target(tmp_path / "target", 7)[0], torch.float64)
    drafter = load_public_block(written(tmp_path / "drafter", of_vocab(7)), small)
    emits_plain_decodings_ids(spec, small, lambda target, sampling: kit_of(target, drafter, sampling),
                              {"block-diffusion", "slot-tree"})


@pytest.mark.parametrize("spec", ["block-diffusion(depth=2)", "ddtree"])
def test_its_drafts_keep_the_targets_distribution_by_enumeration(spec, tmp_path):
    three = Transformer.load(random_target(tmp_path / "target", 3, num_hidden_layers=2)[0], torch.float64)
    drafter = load_public_block(written(tmp_path / "drafter", of_vocab(3, 2, (0,))), three)

    def law(spec):
        def once(dice):
            fresh = three.fresh()
            return run(catalog.build(spec, kit_of(fresh, drafter, WARM, 3)), dice, tokens=3, target=fresh,
                       prompt=PROMPT)
        return every_outcome(once)

    assert distance(law(spec), law("ar")) < 1e-12


def test_slots_of_a_tree_do_not_depend_on_each_other(target, tmp_path, words):
    head = block_head(load_public_block(written(tmp_path / "drafter"), target[0]), target[0].fresh())
    ids, after = head.links(words(9), 3, 4).listed(4)
    assert ids == head.lattice(words(9), 3, 4).ids.tolist()
    assert after(2, 0) == after(2, 3)


# --- what does not fit -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("config", "sentence"), [
    ({**CONFIG, "architectures": ["DFlash2DraftModel"]},
     "drafter is a DFlash2DraftModel, and a block drafter that is known here is a DFlashDraftModel with a dflash_"),
    ({**CONFIG, "architectures": None}, "drafter is no model that says what it is"),
    ({**CONFIG, "dflash_config": None}, "drafter is a DFlashDraftModel, and"),
    (with_own(causal=True), "drafter has causal True, and only drafters with False are supported"),
    ({**CONFIG, "final_logit_softcapping": 30.0}, "has final_logit_softcapping 30.0"),
    (with_own(attention_mode="mla"), "has attention_mode 'mla', and only drafters with 'gqa'"),
    (with_own(selector_rank=8), "the dflash_config of drafter has selector_rank, which is not known here"),
    ({**CONFIG, "hidden_act": "gelu"}, "the drafter drafter cannot be run: activation 'gelu'"),
    ({**CONFIG, "layer_types": ["sliding_attention"] * 2, "sliding_window": 64}, "attends to a sliding window of 64"),
    ({**CONFIG, "hidden_size": 30}, "drafter has a hidden size of 30 for a target of 30, and this target has 24"),
    ({**CONFIG, "vocab_size": 99}, "drafter knows a vocabulary of 99 tokens, and this target has 97"),
    ({**CONFIG, "block_size": 1}, "gives a block_size of 1, and it is a whole number of 2 to 2048"),
    ({**CONFIG, "block_size": 4000}, "gives a block_size of 4000"),
    ({**CONFIG, "block_size": "16"}, "gives a block_size of '16'"),
    (with_own(mask_token_id=97), "gives a mask_token_id of 97, and it is one of 97 tokens"),
    (with_own(target_layer_ids=None), "gives no target_layer_ids, a list of whole numbers"),
    (with_own(target_layer_ids=[1, True]), "gives no target_layer_ids"),
    (with_own(target_layer_ids=[1, 6]), "the hidden states after 2, 7 layers, and of a target of 7 layers they must"),
    (with_own(target_layer_ids=[3, 1]), "after 4, 2 layers, and")])
def test_a_config_of_another_network_is_refused(config, sentence, target, tmp_path):
    folder = written(tmp_path / "drafter")
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refusal) as said:
        load_public_block(folder, target[0])
    assert sentence in str(said.value)


def test_settings_at_their_usual_values_are_no_other_network(target, tmp_path):
    config = with_own({**CONFIG, "is_causal": False, "final_logit_softcapping": None}, output_multiplier=1.0)
    assert load_public_block(written(tmp_path / "drafter", config), target[0]).layout.block == ROWS - 1


def test_missing_unknown_and_wrong_tensors_are_named(target, tmp_path):
    def sentence(**change):
        with pytest.raises(Refusal) as said:
            load_public_block(written(tmp_path / "drafter", **change), target[0])
        return str(said.value)

    assert "drafter lacks the tensors fc.weight, layers.1.self_attn.q_norm.weight of a DFlashDraftModel" in sentence(
        layers__1__self_attn__q_norm__weight=None, fc__weight=None)
    assert "has the tensor layers.0.attention_conv.base_kernel, which a DFlashDraftModel with these" in sentence(
        layers__0__attention_conv__base_kernel=torch.zeros(2, 2))
    assert "has the tensor layers.0.self_attn.q_proj.bias" in sentence(
        layers__0__self_attn__q_proj__bias=torch.zeros(18))
    assert "the tensor fc.weight is 24 x 48 and by its config.json and this target 24 x 72" in sentence(
        fc__weight=torch.zeros(HIDDEN, 2 * HIDDEN))


def test_what_is_no_number_is_refused_and_so_is_a_target_without_hidden_states(target, tmp_path):
    folder = written(tmp_path / "drafter", norm__weight=torch.full((HIDDEN,), float("nan")))
    with pytest.raises(Refusal, match=r"the tensor norm\.weight of drafter holds numbers that are not finite"):
        block_head(load_public_block(folder, target[0]), target[0].fresh())
    with pytest.raises(Refusal, match="a recording and a table have none"):
        load_public_block(folder, Table({(): (.5, .5)}))


def test_a_drafter_reads_no_later_token(target, tmp_path, words):
    head = block_head(load_public_block(written(tmp_path / "drafter"), target[0]), target[0].fresh())
    before = logp_of(head, words(9))
    logp_of(head, words(12))
    assert far(logp_of(head, words(9)), before) < 1e-12
