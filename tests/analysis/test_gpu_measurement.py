"""The measurement of a GPU from made-up cells: curves, floors and predictions of a larger shape."""

import json
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.analysis.gpu_measurement import (
    DRAFTED,
    FREE,
    SHIPPED,
    bench_rows,
    beside_plain,
    floor_rows,
    lines_by_mode,
    load_gpu,
    predicted_rows,
    prompts_of,
)
from specdec_lib.bench.gpu_cells import bytes_read
from specdec_lib.bench.gpu_costs import MODES, SHAPES, done
from specdec_lib.types import Refusal

PRODUCTS, FUSED, EAGER = MODES


def cell(mode, width, seconds, **more):
    return {"mode": mode, "context": 256, "width": width, "seconds": seconds, **more}


@pytest.fixture
def folder(tmp_path):
    """A target at four times its floor; `tiny` pays half as much again for sixteen rows, and prefills in 2 ms."""
    made = {"provenance": {"machine": {"gpu": "Made Up"}}}
    costs = ((1, .001), (4, .0012), (16, .0015))
    tiny = [{"shape": "tiny", "mode": "prefill", "context": 256, "seconds": .002},
            *(cell(PRODUCTS, width, seconds, shape="tiny") for width, seconds in costs),
            cell(PRODUCTS, 4, 9.0, shape="tiny", context=2048)]
    files = {"floor": {"bandwidth": 1e9, "cells": [{"context": 256, "seconds": .0005}]},
             "cost": {"cells": [cell(PRODUCTS, 1, .002), cell(PRODUCTS, 16, .003), cell(EAGER, 1, .009),
                                cell(EAGER, 16, .009), {"mode": FUSED, "context": 256, "width": 1, "error": "no"}]},
             "shapes": {"cells": tiny}}
    for name, held in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(made | held))
    return tmp_path


@pytest.fixture
def results(tmp_path):
    (tmp_path / "respec").mkdir()
    told = {"ar": (1.0, 1.0), "diffuspec": (1.5, 4.0), "block-diffusion": (1.5, 4.0),
            "diffuspec(drafter='block-diffusion')": (1.5, 4.0), "respec": (2.4, 9.0),
            "ddtree(drafter='diffusion-lm')": (1.5, 4.0), "sam": (3.0, 99.0)}
    methods = {name: {"tokens_per_target_forward": tokens, "width": width} for name, (tokens, width) in told.items()}
    (tmp_path / "respec" / "summary.json").write_text(json.dumps({"methods": methods}))
    return tmp_path


def test_lines_have_the_modes_that_were_measured_and_the_floor(folder):
    gpu = load_gpu(folder)
    assert (gpu.gpu, gpu.shapes) == ("Made Up", ["tiny"])
    widths, lines = lines_by_mode(gpu, 256)
    assert widths == [1, 16]
    assert lines == {PRODUCTS: [2.0, 3.0], EAGER: [9.0, 9.0], "what memory allows": [0.5, 0.5]}


def test_rows_compare_a_forward_with_what_memory_allows(folder):
    target, tiny = floor_rows(load_gpu(folder), "mine", 256)
    assert target == {"model": "mine", "what memory allows, ms": 0.5, "one token, ms": 2.0,
                      "times what memory allows": 4.0, "a forward of 16 tokens, in forwards of one": 1.5}
    assert tiny["model"] == "random weights, tiny"
    allowed = bytes_read(SHAPES["tiny"], torch.bfloat16, 256) / 1e9
    assert tiny["times what memory allows"] == pytest.approx(1e-3 / allowed)
    assert tiny["a forward of 16 tokens, in forwards of one"] == pytest.approx(1.5)


def test_predictions_pay_for_the_width_and_a_language_model_for_its_own_forward(folder, results):
    wanted = {"respec": ("respec", "diffuspec", "block-diffusion", "diffuspec(drafter='block-diffusion')",
                         "ddtree(drafter='diffusion-lm')", "sam", "gone")}
    rows = {row["method"]: row for row in predicted_rows(load_gpu(folder), "tiny", (256, 2048), wanted, results)}
    assert list(rows) == list(wanted["respec"])[:-1]
    free, drafted = f"{FREE}, 256 tokens", f"{DRAFTED}, 256 tokens"
    assert rows["respec"][free] == pytest.approx(2.4 / 1.5)
    assert rows["sam"][free] == pytest.approx(3.0 / 1.5)         # no step is as wide: the widest one that was measured
    assert rows["diffuspec"][free] == pytest.approx(1.5 / 1.2)
    assert rows["diffuspec"][drafted] == pytest.approx(1.5 / (1.2 + 2.0))
    assert rows["ddtree(drafter='diffusion-lm')"][drafted] == rows["diffuspec"][drafted]
    assert {name for name in rows if rows[name][drafted] is None} == {
        "respec", "sam", "block-diffusion", "diffuspec(drafter='block-diffusion')"}


def test_what_a_run_left_out_is_left_out(folder):
    costs = [cell(mode, width, .004) for mode in (FUSED, EAGER) for width in (1, 16)]
    (folder / "shapes.json").unlink()
    for found, rows in ((costs, [8.0]), (costs[2:], []), ([], [])):
        made = {"provenance": {"machine": {"gpu": "Made Up"}}, "cells": found}
        (folder / "cost.json").write_text(json.dumps(made))
        gpu = load_gpu(folder)
        assert [row["times what memory allows"] for row in floor_rows(gpu, "mine", 256)] == rows
    with pytest.raises(Refusal, match="no forward was measured after 256 tokens"):
        lines_by_mode(gpu, 256)


def test_a_missing_file_is_refused(folder):
    (folder / "cost.json").unlink()
    with pytest.raises(Refusal, match="is not there"):
        load_gpu(folder)


def test_the_kept_measurement_of_an_h100_is_read():
    gpu = load_gpu(SHIPPED / "h100")
    assert "H100" in gpu.gpu
    for shape in (None, *gpu.shapes):
        for context in (256, 2048):
            assert sorted(gpu.curve(PRODUCTS, context, shape)) == [1, 2, 4, 8, 16, 32, 64, 128]


def kept(folder, **speeds):
    """A run whose intervals reach from 0.1 below each speed to 0.2 above it."""
    folder.mkdir()
    methods = {method: {"tokens_per_target_forward": 2.0, "speedup": speed, "speedup_ci": [speed - .1, speed + .2],
                        "time_share": {"drafter": 0.25}} for method, speed in speeds.items()}
    (folder / "summary.json").write_text(json.dumps({"methods": methods, "prompts": {"count": 7}}))
    return folder


def test_only_an_interval_beside_one_tells_a_method_from_plain_decoding(tmp_path):
    run = kept(tmp_path / "run", ar=1.0, eagle=1.5, sam=1.05, tree=0.7, draft=0.85)
    assert beside_plain(run) == {"faster": ["eagle"], "slower": ["tree"], "not told apart": ["sam", "draft"]}
    assert prompts_of(run) == 7
    (run / "summary.json").write_text(json.dumps({"methods": {"eagle": {"speedup": 1.5, "speedup_ci": None}}}))
    assert not any(beside_plain(run).values())


def test_methods_of_the_first_run_stand_beside_the_others(tmp_path):
    rows = bench_rows({"there": kept(tmp_path / "there", ar=1.0, eagle=1.5),
                       "here": kept(tmp_path / "here", ar=1.0, sam=1.25)})
    assert [row["method"] for row in rows] == ["ar", "eagle"]
    assert rows[0]["95 % interval, there"] == "–"
    assert rows[1] == {"method": "eagle", "share of time spent drafting, there": 0.25,
                       "tokens per forward, there": 2.0, "times plain, there": 1.5,
                       "95 % interval, there": "1.40 to 1.70", "tokens per forward, here": None,
                       "times plain, here": None, "95 % interval, here": "–"}
    (tmp_path / "here" / "summary.json").write_text("{")
    with pytest.raises(Refusal, match="damaged"):
        bench_rows({"here": tmp_path / "here"})


def test_the_shipped_run_of_a_gpu_has_methods_that_the_shipped_report_has():
    rows = bench_rows({"GPU": SHIPPED / "h200" / "bench", "CPU": SHIPPED / "report"})
    assert {"ar", "eagle2", "respec"} <= {row["method"] for row in rows if row["times plain, CPU"]}


def test_a_shape_is_done_with_its_last_cell_and_not_with_those_of_another():
    cells = [{"shape": "tiny"}] * 5
    for count, name, all_there in ((5, "tiny", True), (4, "tiny", False), (5, "other", False)):
        assert done(SimpleNamespace(cells=cells[:count]), name, (1, 4), (16,)) is all_there
