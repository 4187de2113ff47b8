"""Which model a checkpoint was made for: the same in every dtype, another where it matters."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.checkpoints.fingerprint import architecture, compare, evenly_spaced, fingerprint, samples_match
from specdec_lib.models.llama.config import LlamaConfig, Rope
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import reader
from specdec_lib.models.table import Table
from specdec_lib.types import Refusal

SHAPE = LlamaConfig(layers=2, hidden=16, heads=2, kv_heads=1, head_dim=8, mlp=32, vocab=31, context=64)


def text(*pieces):
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    return SimpleNamespace(tokenizer=SimpleNamespace(get_vocab=lambda: vocabulary))


def prints(shape=SHAPE, seed=0, pieces="abc"):
    return fingerprint(Transformer.random(shape, seed), text(*pieces))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_has_one_fingerprint_in_every_dtype(checkpoint, dtype):
    folder = checkpoint("llama").folder
    one, two = (fingerprint(Transformer.load(folder, some), text("a")) for some in (torch.float32, dtype))
    assert one["weights"]
    assert compare(one, two, "eagle", "tiny") is None


def test_single_precision_and_bfloat16_have_the_same_fingerprint(checkpoint):
    folder = checkpoint("llama3").folder
    one, two = (fingerprint(Transformer.load(folder, some), text("a")) for some in (torch.float32, torch.bfloat16))
    assert one == two


def test_another_seed_is_other_weights_of_the_same_model_and_a_warning():
    warning = compare(prints(seed=1), prints(seed=0), "eagle", "mine")
    assert "other weights than mine has" in warning
    assert "`specdec train eagle --target mine`" in warning


def test_slightly_trained_weights_are_detected(checkpoint):
    folder = checkpoint("llama").folder
    model = Transformer.load(folder)
    tuned = replace(model.weights, norm=model.weights.norm * 1.02)
    assert compare(fingerprint(Transformer(tuned), None), fingerprint(model, None), "eagle", "mine") is not None
    assert reader(folder)("model.norm.weight").shape == model.weights.norm.shape


@pytest.mark.parametrize("change", [{"layers": 3}, {"hidden": 24}, {"vocab": 32}, {"rope": Rope(500.0)}, {"eps": 1e-6},
                                    {"rope": Rope(kind="linear", factor=2.0)}, {"rope": Rope(kind="yarn")}])
def test_another_shape_is_refused_with_the_command_that_makes_a_fitting_checkpoint(change):
    with pytest.raises(Refusal, match="mine has another architecture.*`specdec train eagle --target mine`"):
        compare(prints(replace(SHAPE, **change)), prints(), "eagle", "mine", "smollm2-135m")


@pytest.mark.parametrize("same", [{"context": 128}, {"eps": 9.999999747378752e-06}, {"rope": Rope(10000)},
                                  {"rope": Rope(original=99)}])
def test_a_longer_context_and_the_roundings_of_a_config_are_no_other_architecture(same):
    assert architecture(replace(SHAPE, **same)) == architecture(SHAPE)


def test_only_yarns_scale_of_cosines_is_part_of_an_architecture():
    def hashes(kind):
        return {architecture(replace(SHAPE, rope=Rope(kind=kind, factor=8.0, scale=scale))) for scale in (1.0, 1.2)}

    assert [len(hashes(kind)) for kind in ("default", "linear", "llama3", "yarn")] == [1, 1, 1, 2]


def test_another_vocabulary_and_the_same_pieces_in_another_order_are_refused():
    for pieces in ("abd", "acb"):
        with pytest.raises(Refusal, match="another tokenizer"):
            compare(prints(pieces=pieces), prints(), "eagle", "mine")


def test_a_target_without_a_tokenizer_gives_a_warning():
    here = fingerprint(Transformer.random(SHAPE), None)
    assert "without a tokenizer" in compare(here, prints(), "eagle", "mine")


def test_a_table_has_no_architecture_so_checkpoints_of_a_network_are_refused():
    assert fingerprint(Table({(): (0.5, 0.5)}), None) == {"architecture": None, "tokenizer": None, "weights": None}
    with pytest.raises(Refusal, match="another architecture"):
        compare(fingerprint(Table({(): (0.5, 0.5)}), None), prints(), "eagle", "a table")


def test_a_checkpoint_made_for_a_tokenizer_alone_fits_every_model_that_has_it():
    only = {"tokenizer": prints()["tokenizer"]}
    assert compare(prints(replace(SHAPE, layers=5), seed=3), only, "ngram", "mine") is None
    with pytest.raises(Refusal, match="another tokenizer"):
        compare(prints(pieces="xyz"), only, "ngram", "mine")


def test_one_unit_of_rounding_in_a_few_numbers_is_alike_and_more_is_not():
    one = "3f803f80" * 8
    assert samples_match(one, one.replace("3f80", "3f81", 2))
    assert not samples_match(one, one.replace("3f80", "3f82", 1))
    assert not samples_match(one, one.replace("3f80", "3f81", 3))
    assert not samples_match(one, "")


def test_the_places_of_a_sample_are_those_of_exact_arithmetic_in_large_matrices():
    found = evenly_spaced(torch.arange(4_000_000).view(1000, -1)).tolist()
    assert found == [round(i * 3_999_999 / 31) for i in range(32)]         # single precision misses some by one
