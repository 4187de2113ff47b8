"""Any command with any options over damaged files: exit code 0 or 2, one sentence, no traceback, nothing lost."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from specdec_lib.bench import run as bench_run
from specdec_lib.commands import report
from specdec_lib.cost import curves
from specdec_lib.sweep import cluster
from specdec_lib.training.data.examples import is_held_out
from tests import fuzz
from tests.small_bench import model_folder, trained_for
from tests.sweep.worlds import in_process, write_grid

SHORT, LONG = 60, 500
USUAL = {"deadline": None, "derandomize": True, "database": None,
         "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}
KEPT = (".parquet", ".safetensors", "summary.json", "card.json", ".store")    # what took time to make


def answers() -> str:
    """Answers to forty prompts, one in twenty of them held out."""
    prompts = [f"{a} {b} red" for a in "abcdefghij" for b in "klmnopqr"]
    chosen = [*filter(is_held_out, prompts)][:3] + [one for one in prompts if not is_held_out(one)][:20]
    return "".join(json.dumps({"source": "x", "temperature": 0.0, "prompt": prompt, "output": [3, 4, 5, 6, 7]}) + "\n"
                   for prompt in chosen)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One of every kind of file that a command reads, all of them whole."""
    folder = tmp_path_factory.mktemp("world")
    torch.set_num_threads(1)
    model_folder(folder / "model")
    model_folder(folder / "draft", seed=1)
    curves.CostCurve((1, 5, 9), (8,), ((1.0, 1.2, 2.0),)).save(folder / "curve.json")
    prompts = [{"question_id": 1, "category": "qa", "turns": ["a b c a b"]},
               {"question_id": 2, "category": "writing", "turns": ["red green", "blue"], "reference": ["green", "x"]}]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in prompts))
    (folder / "data.jsonl").write_text(answers())
    (folder / "values.yaml").write_text("methods: [ar, sam]\nmax-new-tokens: 2\nlimit: 1\nmethod: sam\n")
    trained_for(folder / "model", folder / "shelf")
    write_grid(folder, targets="model", methods="sam(depth=2)", draft=None)
    for command, out in (("train", "shelf"), ("bench", "run"), ("record", "recordings"), ("store", "a.store"),
                         ("canvas", "filled"), ("sweep", "swept")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster, "start", in_process)
            code, _, err = fuzz.run_in(folder, into(fuzz.usual(command), out), "")
        assert code == 0, err
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_run, "run_prompt", stopped_after_the_first(bench_run.run_prompt))
        assert fuzz.run_in(folder, into(fuzz.usual("bench"), fuzz.BEGUN), "")[0] == 130
    shutil.rmtree(folder / "shelf" / "work")
    return folder


def into(case: fuzz.Case, out: str) -> list[str]:
    """The words of a case with another --out."""
    return [out if word == "out" else word for word in fuzz.words_of(case)]


def stopped_after_the_first(real):
    def run_prompt(index, *more):
        if index:
            raise KeyboardInterrupt
        return real(index, *more)
    return run_prompt


@pytest.fixture(autouse=True)
def no_hub_and_no_kernel(monkeypatch):
    def unreachable(*words, **more):
        raise OSError("no network in a test")
    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    monkeypatch.setattr(report, "write_report", lambda run, values, progress: run / "report.html")
    monkeypatch.setattr(cluster, "start", in_process)


def holds(case: fuzz.Case, world: Path) -> None:
    """Runs a case on a copy of the world and checks what is promised of every command."""
    with tempfile.TemporaryDirectory() as place:
        here = Path(place) / "here"
        fuzz.lay_out(case, world, here)
        before = fuzz.contents(here)
        words = fuzz.words_of(case)
        code, out, err = fuzz.run_in(here, words, case.stdin)
        after = fuzz.contents(here)
    assert code in (0, 2), f"exit code {code} of {words}"
    assert "Traceback" not in out + err
    lines = err.strip().splitlines()
    said = [line for line in lines if line.startswith("specdec: ")]
    if code == 2:
        assert len(said) == 1, f"{words}: {err}"
        assert said == lines[-1:], f"{words}: {err}"
        assert len(said[0]) < 1200, said[0]
    writes = "--write" in words                    # into the cards, which is what it is for
    changed = [name for name in before | after if before.get(name) != after.get(name)]
    places = ["out", *(word for param, word in case.given if param.name == "features")]      # a folder to write to, too
    outside = [name for name in changed if not any(name == place or name.startswith(f"{place}/") for place in places)]
    assert writes or not outside, f"{words} changed {outside}"
    kept = {name: data for name, data in before.items() if name.startswith("out") and name.endswith(KEPT) and data}
    lost = [name for name, data in kept.items() if code == 2 and after.get(name) != data]
    assert not lost, f"{words} with code {code} lost {lost}"


def test_every_command_and_option_is_walked():
    found = fuzz.commands()
    assert set(found) >= {"bench", "report", "generate", "record", "train", "store", "cost", "overhead", "break-even",
                          "canvas", "sweep", "methods", "parts"}
    assert {"out", "methods", "peers"} <= {param.name for param in found["bench"]}


@settings(max_examples=SHORT, **USUAL)
@given(fuzz.cases())
def test_a_command_ends_well_or_with_one_sentence(world, case):
    holds(case, world)


@pytest.mark.long
@settings(max_examples=LONG, **USUAL)
@given(fuzz.cases())
def test_many_commands_end_well_or_with_one_sentence(world, case):
    holds(case, world)
