"""A published head says what a plain forward over whole sequences says, whatever was drafted or rejected before."""

import json
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers
from safetensors.torch import load_file

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.exact import distance, every_outcome
from specdec_lib.heads import base
from specdec_lib.heads.drafter_linear import output_rows
from specdec_lib.heads.eagle import EagleHead, eagle_head
from specdec_lib.heads.public_eagle import load_public_eagle
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.table import Table
from specdec_lib.types import ROOT, Draft, Refusal
from tests.heads.published import (
    ALL,
    HEADS,
    HIDDEN,
    KV,
    LAYERS,
    MLP,
    TOKENS,
    VOCAB,
    Plain,
    Published,
    emits_plain_decodings_ids,
    written,
)
from tests.worlds import PROMPT, WARM, run

CHAIN = Draft((7, 8, 9, 10), (ROOT, 0, 1, 2))
TREE = Draft((7, 8, 9, 10, 11, 12), (ROOT, ROOT, 0, 0, 1, 3))
SMALL = (0, 2, 3, 5, 6)                            # a draft vocabulary of a target of seven tokens


def random_target(folder, vocab, **more):
    """A random model of transformers in double precision, as its folder and itself."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**{**dict(hidden_size=HIDDEN, intermediate_size=MLP, num_hidden_layers=LAYERS,
                                                num_attention_heads=HEADS, num_key_value_heads=KV, vocab_size=vocab,
                                                initializer_range=.3, max_position_embeddings=2048), **more})
    model = transformers.LlamaForCausalLM(config).double().eval()
    for name, weight in model.named_parameters():
        if "norm" in name:                         # ones in transformers, which would hide a norm too many
            torch.nn.init.normal_(weight, 1.0, 0.3)
    model.save_pretrained(folder)
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):    # transformers norms in single precision, whatever the dtype
            module.forward = partial(double_norm, module.weight.detach(), module.variance_epsilon)
    return folder, model


def double_norm(weight, eps, x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """(our decoder, transformers' model) with the same weights."""
    folder, model = random_target(tmp_path_factory.mktemp("target"), VOCAB)
    return Transformer.load(folder, torch.float64), model


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A target of seven tokens, so that a random head is right now and then."""
    return Transformer.load(random_target(tmp_path_factory.mktemp("small"), 7)[0], torch.float64)


@pytest.mark.parametrize("name", ["eagle1", "speculators eagle", "speculators eagle3, every norm"])
def test_a_head_on_a_target_in_4_bits_computes_in_float32_where_there_are_no_bf16_kernels(name, monkeypatch, tmp_path):
    lm = Transformer.load(random_target(tmp_path / "target", VOCAB)[0], "int4")
    folder, found = written(tmp_path / "head", ALL[name]), []
    for dtype in (torch.bfloat16, torch.float32):
        monkeypatch.setattr(base, "default_dtype", lambda device, dtype=dtype: dtype)
        head = eagle_head(load_public_eagle(folder, lm), lm.fresh())
        found.append(head(tuple(range(3, 40)), CHAIN).logits.float())
        assert head.cache.kv.dtype == head.rope[0].dtype == dtype
    assert 0 < far(*found) < 0.1 * float(found[1].abs().max())


def far(a, b) -> float:
    return float((a.double() - b.double()).abs().max())


def of_vocab(kind: Published, vocab: int, ids) -> Published:
    """The same layout for another vocabulary."""
    config = json.loads(json.dumps(kind.config).replace(f'"vocab_size": {VOCAB}', f'"vocab_size": {vocab}'))
    if "draft_vocab_size" in config:
        config["draft_vocab_size"] = len(ids)
    more = {name: tuple(vocab if size == VOCAB else size for size in sizes) for name, sizes in kind.more.items()}
    return replace(kind, config=config, ids=tuple(ids) if kind.third else tuple(range(vocab)), more=more)


@pytest.mark.parametrize("name", ALL)
def test_logits_are_those_of_a_plain_forward_over_whole_sequences(name, target, tmp_path, words):
    ours, model = target
    kind = ALL[name]
    folder = written(tmp_path / "head", kind)
    published = load_public_eagle(folder, ours)
    plain = Plain(folder, model, kind.taps)
    for length, draft in ((2, TREE), (3, Draft()), (12, CHAIN), (12, TREE)):
        head = eagle_head(published, ours.fresh())
        scores = head(words(length), draft)
        want = plain.scores(words(length), draft)
        assert scores.logits.shape == (1 + len(draft), len(kind.ids))
        assert far(scores.logits, want) < 1e-9
        assert scores.best == tuple(kind.ids[column] for column in want.argmax(-1))


@pytest.mark.parametrize("name", ["eagle3", "speculators eagle3, every norm", "eagle1"])
def test_earlier_rounds_do_not_change_a_draft(name, target, tmp_path, rounds):
    ours, model = target
    folder = written(tmp_path / "head", ALL[name])
    plain, dice, head_target = Plain(folder, model, ALL[name].taps), random.Random(1), ours.fresh()
    head = eagle_head(load_public_eagle(folder, ours), head_target)
    for tokens, draft in rounds(seed=3, rounds=14):
        if dice.random() < .6:                     # in the other rounds somebody else drafted
            assert far(head(tokens, draft).logits, plain.scores(tokens, draft)) < 1e-9
        head_target(tokens, draft)


def test_a_greedy_chain_on_the_device_is_the_chain_of_single_steps(target, tmp_path, words):
    ours, _ = target
    for name in ("eagle3", "speculators eagle3, every norm", "eagle1"):
        published = load_public_eagle(written(tmp_path / name, ALL[name]), ours)
        head, other = (eagle_head(published, ours.fresh()) for _ in range(2))
        chain, nodes = head.chain(words(12), 4), ()
        for _ in range(3):
            nodes += (other(words(12), Draft(nodes, tuple(range(-1, len(nodes) - 1)))).best[-1],)
        draft = Draft(nodes, tuple(range(-1, len(nodes) - 1)))
        assert far(chain.logits, other(words(12), draft).logits) < 1e-4 * float(chain.logits.abs().max())
        assert chain.best[:3] == nodes


def test_a_model_that_transformers_runs_is_drafted_for_as_well(target, tmp_path, words):
    ours, model = target
    for name in ("speculators eagle3", "eagle1"):
        folder = written(tmp_path / name, ALL[name])
        wrapped = HuggingFace(model)
        head = eagle_head(load_public_eagle(folder, wrapped), wrapped.fresh())
        assert far(head(words(12), TREE).logits, Plain(folder, model, ALL[name].taps).scores(words(12), TREE)) < 1e-9


def test_a_copy_of_the_targets_embedding_is_not_kept_twice_and_weights_are_packed_once(target, tmp_path):
    ours, _ = target
    state = {"embed_tokens__weight": ours.weights.embedding.clone()}
    same = load_public_eagle(written(tmp_path / "same", ALL["eagle3"], **state), ours)
    own = load_public_eagle(written(tmp_path / "own", ALL["eagle3"]), ours)
    heads = [eagle_head(same, ours.fresh()) for _ in range(2)]
    assert heads[0].weights is heads[1].weights
    assert heads[0].cache is not heads[1].cache
    assert heads[0].embedding is ours.weights.embedding
    assert eagle_head(own, ours.fresh()).embedding is not ours.weights.embedding


def test_an_output_matrix_of_its_own_is_read_where_eagle1_has_one(target, tmp_path, words):
    ours, model = target
    doubled = 2 * model.get_output_embeddings().weight.detach()
    folder = written(tmp_path / "head", ALL["eagle1"], lm_head__weight=doubled)
    head = eagle_head(load_public_eagle(folder, ours), ours.fresh())
    assert far(head(words(5), CHAIN).logits / 2, Plain(folder, model, (LAYERS,)).scores(words(5), CHAIN)) < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions_score_nearly_the_same(dtype, target, tmp_path, words):
    ours, model = target
    folder = written(tmp_path / "head", ALL["speculators eagle3"])
    model.save_pretrained(tmp_path / "target")
    other = Transformer.load(tmp_path / "target", dtype)
    scores = eagle_head(load_public_eagle(folder, other), other)(words(12), TREE)
    plain = Plain(folder, model, ALL["speculators eagle3"].taps)
    other.prefill(words(12))
    plain.states = lambda tokens: other.features(words(12)).double().unbind(1)       # rounded as the head reads them
    want = plain.scores(words(12), TREE)
    assert scores.logits.dtype == torch.float32
    assert far(scores.logits, want) < (1e-4 if dtype == torch.float32 else .1) * float(want.abs().max())


def kit_of(target, head, sampling=None) -> Kit:
    return Kit(target, TokenizerFacts(vocab=7), sampling, checkpoints={"eagle": head}, parts=catalog.make_part)


TREES = "eagle2(depth=3, width=2, nodes=6, least=0, price=0)"


@pytest.mark.parametrize(("name", "spec"), [
    ("eagle3", "eagle(depth=3)"), ("eagle3", TREES), ("eagle3", "sam+eagle2"), ("eagle3", "respec"),
    ("speculators eagle3", TREES), ("speculators eagle", "eagle(depth=3)"), ("speculators eagle", TREES)])
def test_methods_run_on_it_unchanged_and_emit_plain_decodings_ids(name, spec, small, tmp_path):
    head = load_public_eagle(written(tmp_path / "head", of_vocab(ALL[name], 7, SMALL)), small)
    emits_plain_decodings_ids(spec, small, lambda target, sampling: kit_of(target, head, sampling), {"eagle", "eagle2"})


@pytest.mark.parametrize("spec", ["eagle(depth=2)", "eagle2(depth=2, width=2, nodes=3, least=0, price=0)"])
def test_its_drafts_keep_the_targets_distribution_by_enumeration(spec, tmp_path):
    folder, _ = random_target(tmp_path / "target", 3, num_hidden_layers=2)
    three = Transformer.load(folder, torch.float64)
    kind = of_vocab(replace(ALL["speculators eagle3"], config={**ALL["speculators eagle3"].config,
                                                               "eagle_aux_hidden_state_layer_ids": [0, 1]},
                            taps=(0, 1), more={}), 3, (0, 2))
    head = load_public_eagle(written(tmp_path / "head", kind), three)

    def law(spec):
        def once(dice):
            fresh = three.fresh()
            kit = replace(kit_of(fresh, head, WARM), facts=TokenizerFacts(vocab=3))
            return run(catalog.build(spec, kit), dice, tokens=3, target=fresh, prompt=PROMPT)
        return every_outcome(once)

    assert distance(law(spec), law("ar")) < 1e-12


# --- what does not fit -----------------------------------------------------------------------------------------------

def test_a_target_without_hidden_states_is_refused(tmp_path):
    with pytest.raises(Refusal, match="a recording and a table have none"):
        load_public_eagle(written(tmp_path / "head", ALL["eagle3"]), Table({(): (.5, .5)}))


@pytest.mark.parametrize(("steps", "sentence"), [
    ([3, 4, 6, 37, 37, 55, 91], r"the d2t of head leads to token 97, outside a vocabulary of 97"),
    ([-1, 4, 6, 37, 37, 55, 90], r"the d2t of head leads to token -1, outside"),
    (list(TOKENS), r"outside a vocabulary of 97"),                       # ids instead of differences
    ([3, 2, 6, 37, 37, 55, 90], r"leads to one token twice \(it holds differences")])
def test_a_map_of_tokens_that_leads_nowhere_is_refused(steps, sentence, target, tmp_path):
    with pytest.raises(Refusal, match=sentence):
        load_public_eagle(written(tmp_path / "head", ALL["eagle3"], d2t=torch.tensor(steps)), target[0])


def test_a_map_beside_the_whole_vocabulary_must_be_zero(target, tmp_path, words):
    kind = ALL["eagle3, whole vocabulary, biases, norms of heads"]
    zero = written(tmp_path / "zero", kind, d2t=torch.zeros(VOCAB, dtype=torch.long))
    assert load_public_eagle(zero, target[0]).ids.tolist() == list(range(VOCAB))
    with pytest.raises(Refusal, match="drafts the whole vocabulary and has a d2t that is not zero"):
        load_public_eagle(written(tmp_path / "head", kind, d2t=torch.arange(VOCAB)), target[0])


def test_missing_tensors_are_named_and_unknown_ones_too(target, tmp_path):
    def sentence(name, **change):
        with pytest.raises(Refusal) as said:
            load_public_eagle(written(tmp_path / "head", ALL[name], **change), target[0])
        return str(said.value)

    lacking = sentence("eagle3", midlayer__mlp__up_proj__weight=None, norm__weight=None)
    assert "head lacks the tensors midlayer.mlp.up_proj.weight, norm.weight of EAGLE-3's layout" in lacking
    assert "lacks the tensor d2t of" in sentence("speculators eagle3", d2t=None)
    assert "lacks the tensor fc_norm.1.weight" in sentence("speculators eagle3, every norm", fc_norm__1__weight=None)
    unknown = sentence("speculators eagle3", layers__1__mlp__up_proj__weight=torch.zeros(2, 2))
    assert "head has the tensor layers.1.mlp.up_proj.weight, which EAGLE-3's layout with these settings does" in unknown
    assert "has the tensor fc_norm.0.weight" in sentence("eagle3", fc_norm__0__weight=torch.ones(HIDDEN))
    assert "has the tensor layers.0.input_layernorm.weight, which EAGLE-1" in sentence(
        "eagle1", layers__0__input_layernorm__weight=torch.ones(HIDDEN))
    size = sentence("eagle3", fc__weight=torch.zeros(HIDDEN, 2 * HIDDEN))
    assert "the tensor fc.weight is 24 x 48 and by its config.json and this target 24 x 72" in size


def test_a_tensor_with_what_is_no_number_is_refused(target, tmp_path):
    broken = torch.full((HIDDEN,), float("nan"))
    head = load_public_eagle(written(tmp_path / "head", ALL["eagle3"], norm__weight=broken), target[0])
    with pytest.raises(Refusal, match=r"the tensor norm\.weight of head holds numbers that are not finite"):
        eagle_head(head, target[0].fresh())


def test_pickled_weights_are_not_read(target, tmp_path):
    folder = written(tmp_path / "head", ALL["eagle3"])
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(Refusal, match=r"holds no \.safetensors file"):
        load_public_eagle(folder, target[0])


def test_one_token_of_context_is_an_error_as_for_a_head_of_ours(target, tmp_path):
    head = eagle_head(load_public_eagle(written(tmp_path / "head", ALL["eagle1"]), target[0]), target[0].fresh())
    assert isinstance(head, EagleHead)
    with pytest.raises(ValueError, match="two tokens"):
        head((1,), Draft())


def test_the_targets_own_output_matrix_is_shared_not_copied(target, tmp_path):
    ours, _ = target
    head = eagle_head(load_public_eagle(written(tmp_path / "head", ALL["eagle1"]), ours), ours.fresh())
    assert head.weights.head is ours.weights.head
    assert far(output_rows(ours.weights, head.ids).dense(), ours.weights.head.dense()) == 0
