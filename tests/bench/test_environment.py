"""Names of devices and dtypes become ones that exist here or are refused, and every decode gets a kit of its own."""

import pytest
import torch

from specdec_lib.bench import environment
from specdec_lib.bench.environment import device_of, dtype_of, open_environment
from specdec_lib.bench.run import fitting
from specdec_lib.hub.load import default_dtype
from specdec_lib.models.table import Table
from specdec_lib.types import Refusal
from tests.bench.test_run import CURVE, DRAFT, PROMPTS, plan, world
from tests.small_bench import model_folder

FOUR_BIT = ("four_bit_weights", "dtype_of_other_models", "dtype_of_transformers")  # kept about such a target

@pytest.fixture(params=[True, False], ids=["gpu", "no gpu"])
def gpu(request, monkeypatch):
    """Whether this machine has a GPU, as far as torch says."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2 * request.param)
    return request.param


def test_auto_is_the_gpu_where_there_is_one_and_cpu_is_always_the_cpu(gpu):
    assert device_of("auto") == ("cuda" if gpu else "cpu")
    assert device_of("cpu") == "cpu"


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_gpu_that_is_asked_for_by_name_must_be_there(gpu, name):
    if gpu:
        assert device_of(name) == name
    else:
        with pytest.raises(Refusal, match="no CUDA device"):
            device_of(name)


@pytest.mark.parametrize("name", ["tpu", "", "CPU"])
def test_other_devices_are_refused_by_their_name(gpu, name):
    with pytest.raises(Refusal, match=f"no device named {name!r}"):
        device_of(name)


@pytest.mark.parametrize(("name", "full"), [("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16"),
                                            ("fp64", "float64"), ("float32", "float32"), ("bfloat16", "bfloat16")])
def test_a_dtype_is_kept_under_its_full_name(name, full):
    assert dtype_of(name, "cpu") == full


def test_auto_takes_the_dtype_that_the_device_is_fast_in():
    assert getattr(torch, dtype_of("auto", "cpu")) == default_dtype("cpu")


@pytest.mark.parametrize("name", ["int3", "float8", ""])
def test_other_dtypes_are_refused_with_those_there_are(name):
    with pytest.raises(Refusal, match=f"no dtype named {name!r}: take auto, float64, float32, bfloat16, float16"):
        dtype_of(name, "cpu")


@pytest.mark.parametrize("narrow", [True, False], ids=["bf16 kernels", "none"])
def test_a_target_in_4_bits_says_whose_codes_it_has_and_in_what_all_others_compute(narrow, monkeypatch, tmp_path):
    dtype = "bfloat16" if narrow else "float32"
    monkeypatch.setattr(environment, "default_dtype", lambda device: getattr(torch, dtype))
    monkeypatch.setattr(environment, "torchs_dtype", lambda device: getattr(torch, dtype))
    folder, said = model_folder(tmp_path / "tiny"), []
    opened = open_environment(str(folder), "cpu", "int4", 1, str(folder), ("hf-generate",), say=said.append)
    codes = "rounded, 21 of 21 matrices, to 4 bits and the head to 8: another model than the checkpoint"
    assert f"4-bit weights: {codes}; trained drafters have 8-bit codes, other models {dtype}" in said
    assert opened.about["dtype"] == "int4"
    assert [opened.about[name] for name in FOUR_BIT] == [codes, dtype, dtype]
    assert opened.peers[0].model.dtype == opened.draft.dtype == getattr(torch, dtype)
    assert opened.draft.weights.four_bit is None
    plain = open_environment(str(folder), "cpu", "float32", 1)
    assert not {*FOUR_BIT} & set(plain.about)


@pytest.mark.parametrize(("dtype", "torchs", "taken"), [
    ("bfloat16", "float32", "float32"), ("bfloat16", "bfloat16", None), ("float32", "float32", None),
    ("float64", "bfloat16", None)])
def test_transformers_computes_as_the_target_does_or_in_what_torch_is_fast_in(dtype, torchs, taken, monkeypatch,
                                                                              tmp_path):
    monkeypatch.setattr(environment, "torchs_dtype", lambda device: getattr(torch, torchs))
    opened = open_environment(str(model_folder(tmp_path / "tiny")), "cpu", dtype, 1, peer_names=("hf-generate",))
    assert opened.about.get("dtype_of_transformers") == taken
    assert opened.peers[0].model.dtype == getattr(torch, taken or dtype)


def test_a_kit_has_the_sampling_and_the_store_of_the_plan_and_the_draft_model_of_the_world():
    kit = world().kit(plan(temperature=0.5, store="own.store"), CURVE)
    assert (kit.sampling.temperature, kit.store, kit.cost) == (0.5, "own.store", CURVE)
    assert kit.draft.rows == DRAFT.rows
    assert world(draft=None).kit(plan(), CURVE).draft is None


def test_a_kit_begins_with_an_empty_memory_of_its_own_unless_one_is_handed_in():
    here, kept = world(), {"answers": 1}
    one, other = here.kit(plan(), CURVE), here.kit(plan(), CURVE)
    one.memory["answers"] = 1
    assert other.memory == {}
    assert one.indexes is not other.indexes
    assert here.kit(plan(), CURVE, kept).memory is kept


class MovingTable(Table):
    moves_after = 3


def test_a_prompt_beyond_where_positions_change_is_refused_with_the_reason():
    here = world(target=MovingTable(DRAFT.rows, context=3))
    for begin in (lambda: fitting(here, PROMPTS[2], [("user", "aab")]),
                  lambda: here.begin(plan(), CURVE, (0, 0, 1), "given")):
        with pytest.raises(Refusal, match=r"context holds 3 \(beyond it this model changes the angles of all"):
            begin()


def test_what_is_kept_about_the_target_says_which_attention_ran():
    loaded = open_environment("smollm2-135m", "cpu", "bfloat16", 1, drafts=False)
    assert loaded.about["compiled_attention"] is loaded.target.compiled_attention
    assert loaded.about["batch_invariant"] is loaded.target.batch_invariant
