"""A layout is recognised by the config and the names of tensors; what is none, or does not fit, is refused."""

from dataclasses import replace

import pytest

from specdec_lib.heads.eagle_layouts import EAGLE1, EAGLE3, layout_of
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.types import Refusal
from tests.fuzz import HOSTILE
from tests.heads.published import ALL, HIDDEN, LAYER, LAYERS, SPEC1, SPEC3, VOCAB, tensors_of

TARGET = LlamaConfig(layers=LAYERS, hidden=HIDDEN, heads=4, kv_heads=2, head_dim=6, mlp=40, vocab=VOCAB, context=64)
IDS = "eagle_aux_hidden_state_layer_ids"


def sizes_of(kind) -> dict:
    return {kind.first + name: tuple(tensor.shape) for name, tensor in tensors_of(kind).items()}


def found(name: str, target=TARGET, **change):
    """The layout of a known kind after changes of its config; a setting given as None is left out."""
    kind = ALL[name]
    config = {key: value for key, value in {**kind.config, **change}.items() if value is not None}
    return layout_of("head", config, sizes_of(kind), target)


@pytest.mark.parametrize("name", ALL)
def test_each_layout_is_recognised_with_its_taps(name):
    layout = found(name)
    assert layout.kind == (EAGLE3 if ALL[name].third else EAGLE1)
    assert layout.taps == ALL[name].taps
    assert layout.rows == len(ALL[name].ids)
    assert (layout.shape.heads, layout.shape.eps, layout.shape.rope.theta) == (3, 0.03, 300.0)


def test_taps_are_the_references_for_any_number_of_layers_unless_the_config_names_them():
    assert found("eagle3", replace(TARGET, layers=32)).taps == (2, 16, 29)
    assert found("speculators eagle3", replace(TARGET, layers=32), **{IDS: None}).taps == (2, 16, 29)
    assert found("eagle3", **{IDS: [0, 1, 5]}).taps == (0, 1, 5)
    assert found("eagle3", eagle_config={IDS: [0, 1, 5]}).taps == (1, 2, 6)
    assert found("eagle3", eagle_config={IDS: []}, **{IDS: []}).taps == (2, 3, 4)


def test_the_residual_is_as_it_is_unless_the_config_says_so():
    assert found("eagle3").norm_before_residual is False
    assert found("eagle3", norm_before_residual=True).norm_before_residual is True
    assert found("speculators eagle3").norm_before_residual is True
    with pytest.raises(Refusal, match="does not say norm_before_residual, and readers of the format fill it in differ"):
        found("speculators eagle3", norm_before_residual=None)


LAYER3 = {**LAYER, "num_hidden_layers": 3}


@pytest.mark.parametrize(("name", "target", "change", "sentence"), [
    ("eagle3", {"hidden": 32}, {}, "has a hidden size of 24 for a target of 24, and this target has 32"),
    ("eagle3", {}, {"target_hidden_size": 48}, "hidden size of 24 for a target of 48, and this target has 24"),
    ("eagle1", {"vocab": 98}, {}, "knows a vocabulary of 97 tokens, and this target has 98"),
    ("speculators eagle3", {"layers": 6}, {}, "after 1, 3, 6 layers, and of a target of 6 layers they must rise and lie"
     " between 0 and 5"),
    ("eagle3", {"layers": 5}, {}, "after 2, 2, 2 layers"),
    ("eagle3", {}, {IDS: [3, 1, 5]}, "after 3, 1, 5 layers"), ("eagle3", {}, {IDS: [-1, 1, 5]}, "after -1, 1, 5"),
    ("eagle3", {}, {IDS: [1.5, 2]}, "are no list of whole numbers"), ("eagle3", {}, {IDS: 3}, "are no list"),
    ("eagle3", {}, {"num_hidden_layers": 2}, "has 2 layers, and only heads of one layer are supported"),
    ("speculators eagle", {}, {"transformer_layer_config": LAYER3}, "has 3 layers"),
    ("speculators eagle", {}, {"layernorms": True}, "has the further norms of `layernorms`"),
    ("speculators eagle", {}, {"speculators_model_type": "mlp"}, "is a speculator of type 'mlp', and only eagle and"),
    ("speculators eagle", {}, {"speculators_model_type": None}, "is a speculator of type None"),
    ("speculators eagle3", {}, {"speculators_model_type": "peagle"}, "of type 'peagle'"),
    ("speculators eagle3", {}, {"transformer_layer_config": [1]}, "holds no transformer_layer_config"),
    ("speculators eagle3", {}, {"draft_vocab_size": 1}, "a draft_vocab_size of 1, and it is a whole number of 2 to 97"),
    ("speculators eagle3", {}, {"draft_vocab_size": True}, "a draft_vocab_size of True"),
    ("eagle3", {}, {"fc_norm": "yes"}, "gives fc_norm as 'yes', and it is true or false"),
    ("eagle3", {}, {"eagle_config": {"use_aux_hidden_state": False}}, "reads no tapped hidden states"),
    ("eagle3", {}, {"hidden_act": "gelu"}, "the head head cannot be run: activation 'gelu'"),
    ("eagle3", {}, {"model_type": "mamba"}, "cannot be run: architecture 'mamba'"),
    ("eagle3", {}, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rotary scaling 'dynamic'"),
    ("eagle3", {}, {"hidden_size": None}, "lacks hidden_size"),
    ("speculators eagle3, every norm", {}, {"fc_norm": False}, "has the tensors fc_norm.0.weight"),
    ("speculators eagle3", {}, {"norm_before_fc": True}, "lacks the tensor input_norm.weight of EAGLE-3's")])
def test_what_does_not_fit_is_refused_in_a_sentence(name, target, change, sentence):
    with pytest.raises(Refusal) as said:
        found(name, replace(TARGET, **target), **change)
    assert sentence in str(said.value)


@pytest.mark.parametrize("sizes", [{}, {"fc.weight": (24, 48)}, {"model.layers.0.mlp.up_proj.weight": (36, 24)}])
def test_a_folder_without_a_head_is_refused(sizes):
    with pytest.raises(Refusal, match="head is no EAGLE head that is known here"):
        layout_of("head", LAYER, sizes, TARGET)


def test_a_head_with_its_layer_missing_is_told_what_it_lacks():
    with pytest.raises(Refusal, match=r"lacks the tensors fc\.weight, layers\.0\.self_attn\.q_proj\.weight, .* 10 mor"):
        layout_of("head", SPEC3 | {"norm_before_residual": True}, {}, TARGET)
    with pytest.raises(Refusal, match="lacks the tensors"):
        layout_of("head", SPEC1, {}, TARGET)


@pytest.mark.parametrize("name", ["eagle3", "speculators eagle3, every norm", "eagle1"])
def test_any_value_of_any_setting_gives_a_layout_or_one_sentence(name):
    spoken, outcomes = "transformer_layer_config" in ALL[name].config, set()
    keys = {**ALL[name].config, **LAYER, "eagle_config": 0, IDS: 0, "target_hidden_size": 0, "rope_scaling": 0,
            "layer_types": 0, "norm_output": 0, "draft_vocab_size": 0}
    for key in keys:
        for value in HOSTILE:
            inner = {"transformer_layer_config": {**LAYER, key: value}} if spoken and key in LAYER else {key: value}
            try:
                layout_of("head", {**ALL[name].config, **inner}, sizes_of(ALL[name]), TARGET)
                outcomes.add("a layout")
            except Refusal:
                outcomes.add("a sentence")
    assert outcomes == {"a layout", "a sentence"}
