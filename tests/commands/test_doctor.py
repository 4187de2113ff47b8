"""`specdec doctor`: plain sentences with remedies, JSON, and exit code 0 whatever is missing."""

import copy
import json

import pytest

from specdec_lib import cli
from specdec_lib.commands.doctor import remedies, told
from tests.small_bench import model_folder

GOOD = {"machine": {"processor": "P", "cores": 4, "threads": 4, "memory_gib": 8.0, "gpu": None, "bf16": True,
                    "load": 0.1, "device": "cpu", "dtype": "bfloat16", "compiler": "cc", "four_bit_tile": "AVX2",
                    "instructions": {"avx2": True, "avx512": True}, "free_memory_gib": 4.0, "gpu_present": False},
        "installed": {"versions": {"torch": "2"}, "missing": {}, "checkpoints": ["eagle"],
                      "model": {"name": "smollm2-135m", "present": True, "parameters": 1_000_000, "decoder": "ours",
                                "bytes_per_forward": 2_000_000, "batch_invariant": True, "compiled_attention": True,
                                "four_bit": {"batch_invariant": True, "compiled_attention": False}}},
        "measured": {"bytes_per_second": 1e10, "seconds": 2.0}, "predicted": {"plain_tokens_per_second": 5000.0}}
SPOILT = {"load": ({"machine": {"load": 3.0}}, "other programs use this machine"),
          "bf16": ({"machine": {"bf16": False, "dtype": "float32"}}, "no bf16 kernels"),
          "gpu": ({"machine": {"gpu_present": True}}, "install a CUDA build of torch"),
          "model": ({"installed": {"model": {**GOOD["installed"]["model"], "present": False}}}, "`make model`"),
          "compiler": ({"machine": {"compiler": None}, "installed": {"model": {
              **GOOD["installed"]["model"], "compiled_attention": False}}}, "install a C compiler"),
          "packages": ({"installed": {"missing": {"test": ["pytest"]}}}, "install pytest with"),
          "drafters": ({"installed": {"checkpoints": []}}, "specdec train eagle")}


def test_a_machine_that_has_everything_needs_nothing_and_labels_the_prediction():
    lines = told(GOOD)
    assert lines[-1] == "nothing is missing"
    for more in ({"gpu_present": True, "gpu": "H200"}, {"compiler": None}):                # compiled before
        assert list(remedies({**GOOD, "machine": GOOD["machine"] | more})) == []
    assert any(line.startswith("plain decoding, predicted: 5000 tokens/s, if all time went into") for line in lines)
    assert "memory bandwidth: 10.0 GB/s, measured by reading with 4 threads" in lines
    assert "4-bit weights: --dtype int4 runs on the CPU, in C code that cc compiles once, with AVX2" in lines


def test_the_line_on_4_bit_weights_says_what_is_missing_for_them():
    for machine, said in (({"compiler": None, "four_bit_tile": None}, "needs a C compiler, such as gcc"),
                          ({"four_bit_tile": None}, "cannot run, cc compiles no C code for this machine")):
        assert f"4-bit weights: --dtype int4 {said}" in told({**GOOD, "machine": {**GOOD["machine"], **machine}})


@pytest.mark.parametrize(("changes", "said"), [
    ({}, "a row has the same bits alone and beside others, with torch's kernels, which take longer"),
    ({"four_bit": {"batch_invariant": True, "compiled_attention": True}},
     "a row has the same bits alone and beside others, with compiled attention"),
    ({"four_bit": {"batch_invariant": False, "compiled_attention": False}},
     "not promised, a row may differ by rounding beside other rows"),
    ({"four_bit": None}, "--dtype int4 does not run this model here"),
    ({"four_bit": None, "present": False}, "not known without the model")])
def test_one_line_says_whether_a_row_keeps_its_bits_in_4_bit_weights(changes, said):
    found = copy.deepcopy(GOOD)
    found["installed"]["model"].update(changes)
    assert [line for line in told(found) if "equal bits with --dtype int4" in line] == [
        f"equal bits with --dtype int4: {said}"]


@pytest.mark.parametrize("name", SPOILT)
def test_each_thing_that_is_missing_has_its_own_remedy(name):
    changes, said = SPOILT[name]
    found = copy.deepcopy(GOOD)
    for part, values in changes.items():
        found[part].update(values)
    [remedy] = remedies(found)
    assert said in remedy
    assert told(found)[-1] == f"to do: {remedy}"


@pytest.mark.parametrize(("dtype", "changes", "said"), [
    ("float32", {}, "the same bits"), ("float32", {"instructions": {"avx2": True, "avx512": False}}, "the same bits"),
    ("float32", {"instructions": {"avx2": False, "avx512": False}}, None), ("float32", {"instructions": None}, None),
    ("bfloat16", {}, "less time"), ("bfloat16", {"instructions": {"avx2": True, "avx512": False}}, "less time"),
    ("bfloat16", {"instructions": {"avx2": False, "avx512": False}}, None),
    ("float32", {"device": "cuda"}, None)])
def test_a_compiler_is_asked_for_where_it_would_compile_the_attention_of_this_dtype(dtype, changes, said):
    found = copy.deepcopy(GOOD)
    found["machine"].update({"compiler": None, "dtype": dtype, **changes})
    found["installed"]["model"].update(compiled_attention=False, batch_invariant=dtype == "bfloat16")
    asked = [line for line in remedies(found) if "compiler" in line]
    assert (said is None and not asked) or said in asked[0]


def test_the_command_ends_with_0_and_gives_the_same_as_json(tmp_path, capsys):
    model = model_folder(tmp_path / "tiny")
    words = ["doctor", "--target", str(model), "--checkpoints", str(tmp_path), "--seconds", "0.01"]
    assert cli.run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "trained drafters: none" in lines
    assert any(line.startswith("to do: ") for line in lines)
    assert cli.run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"machine", "installed", "measured", "predicted"}
    assert found["installed"]["model"]["name"] == "tiny"
    assert str(tmp_path) not in json.dumps(found)
    assert cli.run([*words[:-1], "-1"]) == 2
    assert "0 to 60 seconds" in capsys.readouterr().err


def test_a_path_without_a_folder_is_refused_and_a_name_on_the_hub_is_not(tmp_path, capsys):
    words = ["doctor", "--checkpoints", str(tmp_path), "--seconds", "0", "--target"]
    assert cli.run([*words, str(tmp_path / "missing")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert cli.run([*words, "you/your-model"]) == 0
    assert "target you/your-model: not on this disk" in capsys.readouterr().out
