"""Facts about a machine: what is measured, what follows from it, and what is read without loading a model."""

import pytest
import torch

from specdec_lib.bench import diagnosis as doctor
from specdec_lib.hub.load import dtype_for, load_lm
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.types import Refusal
from tests.models.test_huggingface import CONFIGS
from tests.small_bench import model_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


def test_the_prediction_is_the_measured_bandwidth_over_the_bytes_of_the_weights(model, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "dtype_for", lambda folder, device: torch.float32)
    found = doctor.diagnosis(str(model), tmp_path, seconds=0.01)
    speed, facts = found["measured"]["bytes_per_second"], found["installed"]["model"]
    assert speed > 1e6
    assert found["predicted"] == {"plain_tokens_per_second": speed / facts["bytes_per_forward"]}
    weights = load_lm(model, torch.float32, "cpu").weights
    read = [getattr(layer, name).dense() for layer in weights.layers for name in ("qkv", "out", "gate_up", "down")]
    assert facts["bytes_per_forward"] == 4 * sum(matrix.numel() for matrix in (*read, weights.head.dense()))
    assert facts["parameters"] > sum(matrix.numel() for matrix in read)


def test_the_bandwidth_is_bytes_over_the_best_time_of_a_pass(monkeypatch):
    clock = iter([0.0, 1.0, 1.5, 1.5, 2.0, 2.125, 2.125, 3.0, 3.25, 9.0])      # passes of 1/2, 1/8 and 1/4 seconds
    monkeypatch.setattr(doctor, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(doctor, "free_memory", lambda device: 2 ** 22)
    assert doctor.bandwidth(torch.device("cpu"), 3.0) == 2 ** 20 * 8


def test_memory_is_told_in_gib_of_one_digit():
    assert (doctor.gib(5 * 2 ** 29), doctor.gib(None)) == (2.5, None)


def test_no_time_and_no_memory_measure_nothing(monkeypatch):
    assert doctor.bandwidth(torch.device("cpu"), 0.0) is None
    monkeypatch.setattr(doctor, "free_memory", lambda device: 4096)
    assert doctor.bandwidth(torch.device("cpu"), 0.01) is None


def test_rows_are_called_batch_invariant_where_the_loaded_model_is(model):
    for dtype in (torch.bfloat16, torch.float32):
        facts, lm = doctor.model_facts(str(model), dtype, "cpu"), load_lm(model, dtype, "cpu")
        assert (facts["batch_invariant"], bool(facts["compiled_attention"])) == (lm.batch_invariant,
                                                                                 lm.compiled_attention)


def test_the_promise_of_equal_bits_in_4_bits_is_that_of_the_loaded_model(model, monkeypatch):
    facts, lm = doctor.model_facts(str(model), torch.float32, "cpu"), load_lm(model, "int4", "cpu")
    assert facts["four_bit"] == {"batch_invariant": lm.batch_invariant, "compiled_attention": lm.compiled_attention}
    monkeypatch.setattr(doctor, "layout_for", lambda shape, dtype, packed=True: None)
    unlike = {"batch_invariant": False, "compiled_attention": False}
    assert doctor.model_facts(str(model), torch.float32, "cpu")["four_bit"] == unlike
    monkeypatch.setattr(doctor, "four_bit_tile", lambda: None)
    assert doctor.model_facts(str(model), torch.float32, "cpu")["four_bit"] is None


def test_a_model_that_transformers_runs_reads_every_weight_and_promises_no_equal_bits(tmp_path):
    from transformers import AutoModelForCausalLM

    lm = AutoModelForCausalLM.from_config(CONFIGS["gpt_neox"]())
    lm.save_pretrained(tmp_path)
    facts = doctor.model_facts(str(tmp_path), torch.float32, "cpu")
    assert facts["decoder"] == "transformers"
    assert facts["batch_invariant"] is False
    assert facts["four_bit"] is None
    assert facts["bytes_per_forward"] == 4 * sum(weight.numel() for weight in lm.parameters())
    here = doctor.diagnosis(str(tmp_path), tmp_path, seconds=0)["machine"]
    assert here["dtype"] in str(dtype_for(tmp_path, here["device"]))


def test_a_model_that_is_not_here_is_not_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("smollm2-135m", "owner/model"):
        facts = doctor.model_facts(name, torch.float32, "cpu")
        assert facts["present"] is False
        assert facts["bytes_per_forward"] is facts["batch_invariant"] is None
    assert not list(tmp_path.iterdir())


def test_the_compiler_named_is_the_one_that_compiles(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert doctor.compiler() is None
    monkeypatch.setenv("CC", "'cc' -O1")
    assert doctor.compiler() == "cc"


def test_missing_packages_are_named_by_extra(monkeypatch):
    wanted = ["torch>=2", "nowhere-to-be-found>=1", 'numpy<0.1; extra == "old"', 'also-missing; extra == "old"']
    monkeypatch.setattr(doctor, "requires", lambda name: wanted)
    assert doctor.missing_packages() == {"": ["nowhere-to-be-found>=1"], "old": ["numpy<0.1", "also-missing"]}


def test_seconds_beyond_a_minute_and_below_zero_are_refused(tmp_path):
    for seconds in (-1, 61, float("nan")):
        with pytest.raises(Refusal, match="0 to 60 seconds"):
            doctor.diagnosis("smollm2-135m", tmp_path, seconds=seconds)


def test_the_shape_decides_what_is_read():
    small = LlamaConfig(layers=1, hidden=8, heads=2, kv_heads=1, head_dim=4, mlp=16, vocab=10, context=64)
    assert doctor.bytes_read(small, torch.float32) == 4 * (8 * (8 + 4 + 4) + 8 * 8 + 3 * 8 * 16 + 10 * 8)
