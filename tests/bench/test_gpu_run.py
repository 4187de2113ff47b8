"""The whole of `specdec gpu` on a CPU and a tiny random model: every step writes, and nothing is done twice."""

import errno
import json
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from specdec_lib import cli
from specdec_lib.bench import gpu_cells, gpu_costs, gpu_run
from specdec_lib.bench.gpu_cells import CellFile, OutOfTime, bytes_read
from specdec_lib.bench.gpu_costs import MODES
from specdec_lib.bench.gpu_run import GpuPlan, GpuRun
from specdec_lib.bench.options import prepare
from specdec_lib.bench.run_folder import RunFolder, writing_run
from specdec_lib.commands.gpu import run_gpu
from specdec_lib.hub.load import load_lm
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.toys.tiny_target import SHAPE
from specdec_lib.types import Draft, Refusal
from tests.training.folder import HELD, model_folder

KINDS = ("inline", "thread")
FILES = ("floor.json", "cost.json", "shapes.json", "drafts.json", "kernels.json",
         "bench-1/summary.json")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("gpu")
    prompts = folder / "prompts.jsonl"
    prompts.write_text(json.dumps({"question_id": 1, "category": "qa", "turns": [HELD[0]]}) + "\n")
    return GpuPlan(folder / "out", str(model_folder(folder / "model")), "cpu", "float32",
                   ("floor", "cost", "shapes", "drafts", "kernels", "bench"), 2.0, 1, 6, ("ar", "sam"),
                   ("hf-generate",), ("tiny",), prompts, (1, 4), (16,), 1 << 20)


def checks(count):
    """A check that finds time so often."""
    left = iter([None] * count)

    def check():
        if next(left, left):
            raise OutOfTime
    return check


def test_every_step_writes_what_it_measured_and_a_second_run_measures_nothing(plan, monkeypatch):
    monkeypatch.setattr(gpu_cells, "REPEATS", 2)
    said = []
    assert run_gpu(plan, False, said.append), said
    assert "measured on the CPU" in said[0]
    floor, cost, shapes, drafts, kernels, bench = (json.loads((plan.out / name).read_text()) for name in FILES)
    assert floor["bandwidth"] > 1e8
    assert floor["cells"][0]["seconds"] == floor["cells"][0]["bytes"] / floor["bandwidth"]
    assert {(cell["mode"], cell["width"]) for cell in cost["cells"]} == {
        (mode, width) for mode in MODES for width in (1, 4)}
    assert all(0 < cell["fastest"] <= cell["seconds"] for cell in cost["cells"])
    assert all(cell["device_seconds"] > 0 for cell in cost["cells"] if cell["mode"] != "eager")
    assert {one["predicted"] for one in shapes["predicted"]} == {True}
    assert next(one["speedup"] for one in shapes["predicted"] if one["method"] == "ar") == 1.0
    assert [cell["method"] for cell in drafts["cells"]] == ["ar", "draft-model(depth=4)",
                                                             *(f"pearl(depth=4,workers='{kind}')" for kind in KINDS)]
    assert all(cell["seconds"] > 0 and cell["tokens"] == 6 and cell["works"] == [] for cell in drafts["cells"])
    assert [{**cell, "works": 0} for cell in kernels["cells"]] == [{"method": cell["method"], "works": 0}
                                                                   for cell in drafts["cells"]]
    assert {*bench["methods"], *bench["peers"]} == {"ar", "sam", "hf-generate"}
    before = {name: (plan.out / name).stat().st_mtime_ns for name in FILES}
    assert run_gpu(plan, False, said.append)
    assert {name: (plan.out / name).stat().st_mtime_ns for name in FILES} == before


def test_a_cut_keeps_its_cells_and_the_next_run_measures_the_others(plan, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_cells, "REPEATS", 1)
    run = GpuRun(replace(plan, out=tmp_path, steps=("cost",)), lambda line: None)
    monkeypatch.setattr(run, "check", checks(3))   # one for the step, one for each cell
    with pytest.raises(OutOfTime):
        run.run()
    first = json.loads((tmp_path / "cost.json").read_text())
    assert (len(first["cells"]), first["finished"]) == (2, False)
    monkeypatch.setattr(run, "check", checks(9))
    run.run()
    assert json.loads((tmp_path / "cost.json").read_text())["cells"][:2] == first["cells"]
    assert json.loads((tmp_path / "cost.json").read_text())["finished"]


def test_an_error_of_the_device_is_kept_and_its_cell_measured_again_by_the_next_run(tmp_path):
    file = CellFile(tmp_path / "cost.json", {})

    def fails():
        raise torch.OutOfMemoryError("no memory is left\nmore")
    file.once({"width": 1}, fails)
    file.once({"width": 2}, lambda: {"seconds": 1.0})
    file.finish()
    assert json.loads((tmp_path / "cost.json").read_text())["cells"] == [
        {"width": 1, "error": "OutOfMemoryError: no memory is left"}, {"width": 2, "seconds": 1.0}]
    again = CellFile(tmp_path / "cost.json", {})
    assert not again.held["finished"]
    again.once({"width": 1}, lambda: {"seconds": 2.0})
    again.once({"width": 2}, fails)
    assert again.cells == [{"width": 2, "seconds": 1.0}, {"width": 1, "seconds": 2.0}]


def test_a_group_that_fails_leaves_the_next_alone_and_says_where(plan, monkeypatch, tmp_path):
    run, begun = GpuRun(replace(plan, out=tmp_path, steps=("bench",)), lambda line: None), []
    monkeypatch.setattr(GpuPlan, "groups", (("ar", "sam"), ("ar", "prompt-lookup")))

    def bench_group(options, out):
        begun.append(options.methods)
        if len(begun) == 1:
            run.last = "sam, prompt 3"
            raise Refusal("the logits are not numbers")
    monkeypatch.setattr(run, "bench_group", bench_group)
    assert run.run() == ["bench-1: Refusal: ['the logits are not numbers']"]
    assert begun == ["ar,sam", "ar,prompt-lookup"]
    said = (tmp_path / "bench-1-error.txt").read_text()
    assert said.startswith("ar, sam; last begun: sam, prompt 3\n")
    assert "in bench_group" in said
    assert run.run()[1:] == []
    assert not (tmp_path / "bench-1-error.txt").exists()


@pytest.mark.parametrize("name", ["settings.json", "summary.json", "parts/00000"])
def test_a_damaged_bench_folder_is_refused_before_anything_is_measured(name, plan, tmp_path):
    said = []
    run = GpuRun(replace(plan, out=tmp_path), said.append)
    bench = tmp_path / "bench-1"
    RunFolder(bench, prepare(run.options(0, plan.methods)).plan)
    (bench / name).parent.mkdir(exist_ok=True)
    (bench / name).write_text("{")
    with pytest.raises(Refusal, match=f"bench-1/{name} cannot be read"):
        run.run()
    assert not any("begun" in line for line in said)


def test_a_full_disk_ends_the_run_and_is_no_failure_of_a_group(plan, monkeypatch, tmp_path):
    run, begun = GpuRun(replace(plan, out=tmp_path, steps=("bench",)), lambda line: None), []
    monkeypatch.setattr(GpuPlan, "groups", (("ar", "sam"), ("ar", "prompt-lookup")))

    def bench_group(options, out):
        begun.append(out)
        with writing_run(out):
            raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(run, "bench_group", bench_group)
    with pytest.raises(Refusal, match=r"bench-1 cannot be written: its disk is full.* finished prompts are kept"):
        run.run()
    assert begun == [tmp_path / "bench-1"]


@pytest.mark.parametrize(("content", "said"), [
    ("{", "is damaged"), ("[]", "is damaged"), ("{}", "is damaged"), ("[" * 100_000, "is damaged"),
    ('{"settings": {}, "finished": false, "cells": [1]}', "is damaged"),
    ('{"settings": {"target": "other"}, "finished": true, "cells": []}', "was measured with {'target': 'other'}")])
def test_cells_that_are_damaged_or_of_another_run_are_refused_and_stay(content, said, tmp_path):
    path = tmp_path / "cost.json"
    path.write_text(content)
    with pytest.raises(Refusal, match=f"{said}.* give another --out"):
        CellFile(path, {})
    assert path.read_text() == content


def test_a_damaged_verdict_of_the_tests_is_refused(plan, tmp_path):
    (tmp_path / "tests.json").write_text("[]")
    with pytest.raises(Refusal, match="tests.json is damaged"):
        GpuRun(replace(plan, out=tmp_path, steps=("tests",)), lambda line: None).run()


def test_tests_that_fail_are_told_and_shapes_have_the_dtype_of_the_run(plan, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(gpu_run, "run_tests", lambda *words: False)
    monkeypatch.setattr(gpu_run, "measure_shapes", lambda file, names, device, dtype, *more: seen.append(dtype))
    run = GpuRun(replace(plan, out=tmp_path, steps=("tests", "shapes"), dtype="bfloat16"), lambda line: None)
    assert run.run() == [f"tests failed, see {tmp_path / 'tests'}"]
    assert seen == [torch.bfloat16]


def test_the_minutes_end_a_bench_between_two_decodes_and_each_prompt_is_told_once(plan, monkeypatch, tmp_path):
    said = []
    run = GpuRun(replace(plan, out=tmp_path, steps=("bench",)), said.append)
    monkeypatch.setattr(run, "check", checks(4))   # one for the step, one for each decode
    monkeypatch.setattr(gpu_run, "bench_prepared", lambda prepared, out, progress, say: [
        progress(done, 4, what) for done, what in enumerate(("prompt 1", "prompt 1", "ar", "prompt 2"))])
    with pytest.raises(OutOfTime):
        run.run()
    assert said[2:] == ["bench-1: 0 of 4 decodes, prompt 1"]
    assert [run.options(place, ("ar",)).peers for place in (0, 1)] == ["hf-generate", ""]


@pytest.mark.parametrize(("changed", "said"), [
    ({"peers": ("dance",)}, "no peer named 'dance'"), ({"methods": ("ar", "ar")}, "named twice"),
    ({"limit": 0}, "leaves nothing to run"), ({"max_new_tokens": 0}, "max_new_tokens must be at least 1")])
def test_what_the_bench_cannot_run_is_refused_before_anything_is_measured(changed, said, plan, tmp_path):
    with pytest.raises(Refusal, match=said):
        GpuRun(replace(plan, out=tmp_path / "out", **changed), lambda line: None).run()
    assert not (tmp_path / "out").exists()


def test_the_bytes_of_a_forward_are_those_of_its_matrices_and_its_context():
    weights = random_weights(SHAPE)
    linear = [part for layer in weights.layers for part in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    matrices = sum(part.dense().numel() for part in [*linear, weights.head])
    assert bytes_read(SHAPE, torch.float32) == 4 * matrices == 2 * bytes_read(SHAPE, torch.bfloat16)
    assert bytes_read(SHAPE, torch.float32, 10) - 4 * matrices == 4 * SHAPE.layers * 2 * SHAPE.kv_heads * 16 * 10


def test_a_fixed_step_decodes_with_the_attention_of_the_first_mode():
    lm = Transformer(random_weights(SHAPE), static=True)
    lm((1, 2, 3), Draft())
    assert MODES[0].endswith("by products")
    assert lm.lease is not None
    assert lm.lease.held.last is not None
    assert lm.lease.held.last.products


@pytest.mark.parametrize(("words", "reason"), [
    (["--steps", "tests,dance"], "there is no step named 'dance'"), (["--shapes", "gpt-5"], "no shape named 'gpt-5'"),
    (["--minutes", "0"], "minutes are above 0"), (["--minutes", "nan"], "minutes are above 0 and finite"),
    (["--steps", ""], "name at least one step"), (["--device", "tpu"], "there is no device named 'tpu'")])
def test_wrong_options_are_refused_in_one_sentence(words, reason, capsys, tmp_path):
    assert cli.run(["gpu", "--out", str(tmp_path / "out"), "--device", "cpu", *words]) == 2
    assert reason in capsys.readouterr().err


def test_a_plan_says_which_methods_come_first(tmp_path):
    groups = GpuPlan(tmp_path, "smollm2-135m", "cuda", "bfloat16").groups
    assert groups[0][0] == "ar"
    assert "eagle" in groups[0]
    assert "token-recycling" in groups[2]
    assert {"pearl", "ppsd"} <= {*groups[2]}
    assert not any("specdec" in group for group in groups)       # it pronounces words
    with pytest.raises(Refusal, match="no step"):
        GpuPlan(tmp_path, "smollm2-135m", "cuda", "bfloat16", ("walk",))


def test_a_cell_feeds_as_many_rows_as_its_width_and_never_the_same_ones_twice():
    asked, read, target = [], [], SimpleNamespace(device=torch.device("cpu"), vocab=50, lease=None)
    watched = type("Watched", (), {**vars(target), "prefill": lambda self, tokens: read.append(tokens), "__call__":
                                   lambda self, *words: asked.append(words) or SimpleNamespace(best=(1,))})
    gpu_cells.forward_cell(watched(), 16, 4)
    assert {(len(tokens), len(draft.tokens), draft.parents) for tokens, draft in asked} == {(17, 3, (-1, 0, 1))}
    assert all(one[0] != other[0] for one, other in pairwise(asked))
    gpu_cells.prefill_cell(watched(), 16)
    assert all(one[0] != other[0] for one, other in pairwise(read[1:]))        # else a cache would hold the text


def test_a_cell_times_until_the_device_is_done_and_leaves_out_the_first_forwards(monkeypatch):
    now, queued, gpu = [0.0], [], torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: now.append(now.pop() + sum(queued)) or queued.clear())
    monkeypatch.setattr(gpu_cells, "perf_counter", lambda: now[0])
    took = [9.0, 9.0, 0.1, 0.25, 0.5, 1.0, 0.75, 9.0]            # the first ones capture, however long that takes
    assert gpu_cells.timed(gpu, lambda repeat: queued.append(took[repeat]), 5) == {
        "seconds": 0.625, "fastest": 0.25, "repeats": 4}
    assert gpu_cells.replayed(gpu, lambda: queued.append(took.pop()), 4) == 0.625
    monkeypatch.setattr(gpu_cells, "timed", lambda *words: {"fastest": 2.0})
    assert gpu_cells.bandwidth(torch.device("cpu"), 8) == 8.0


@pytest.mark.parametrize("eager", [True, False])
def test_a_run_is_captured_unless_it_is_eager(eager, plan, monkeypatch):
    seen = []
    monkeypatch.setattr(GpuRun, "run", lambda self: seen.append(Transformer.capture))
    monkeypatch.setattr(Transformer, "capture", "as it was")
    assert run_gpu(plan, eager, seen.append)
    assert [*seen, Transformer.capture] == [not eager, "as it was"]


def test_only_the_first_mode_attends_by_products_and_only_eager_captures_nothing(plan, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(gpu_costs, "forward_cell", lambda own, *sizes: seen.append((own.products, own.static)) or {})
    lm = load_lm(plan.target, torch.float32, "cpu")
    gpu_costs.measure_costs(CellFile(tmp_path / "cost.json", {}), lm, lambda: None, (1, lm.context), (16,))
    assert seen == [(True, True), (False, True), (False, False)]
