"""A drafting process that is killed at any moment: no wrong output, no process left, and a bench that resumes."""

import json
import multiprocessing
import os
import random
import signal
import threading
from time import perf_counter

import pytest

from specdec_lib import catalog, cli
from specdec_lib.bench.results import read_results
from specdec_lib.cost.curves import CostCurve
from specdec_lib.dice import Dice
from specdec_lib.loop import decode
from specdec_lib.schedules.workers import ProcessWorker
from specdec_lib.types import Refusal
from tests.nursery import PROMPTS
from tests.training.folder import model_folder
from tests.worlds import PROMPT, TARGET, WARM, kit

TOKENS = 120
DIED = "the drafting process ended in the middle of a decode (signal SIGKILL"


OTHERS = ("specbranch", "duodecoding", "double")   # than PEARL, on the same schedule


def decoded(seed: int, workers: str, name: str = "pearl") -> tuple[int, ...]:
    method = catalog.build(f"{name}(depth=3, workers='{workers}')", kit())
    *_, session = decode(PROMPT, TARGET, *method, max_new_tokens=TOKENS, sampling=WARM, dice=Dice(seed))
    return session.output


def kills(count: int, name: str = "pearl") -> list[str]:
    """The sentences of decodes whose worker was killed after random times; "written" for one that had ended."""
    dice, ends = random.Random(count), []
    start = perf_counter()
    calm = [decoded(seed, "process", name) for seed in range(4)]
    usual = (perf_counter() - start) / len(calm)
    for turn in range(count):
        seed = turn % len(calm)
        killer = threading.Timer(dice.uniform(0, usual), kill_children)
        killer.start()
        try:
            assert decoded(seed, "process", name) == calm[seed]
            ends.append("written")
        except Refusal as error:
            ends.append(str(error))
        finally:
            killer.cancel()
            killer.join()
        assert not multiprocessing.active_children()
    assert calm == [decoded(seed, "inline", name) for seed in range(len(calm))]
    return ends


def kill_children() -> None:
    for child in multiprocessing.active_children():
        os.kill(child.pid or 0, signal.SIGKILL)


def test_a_killed_worker_costs_a_sentence_and_never_a_wrong_token():
    assert any(DIED in said for said in kills(8))


@pytest.mark.parametrize("name", OTHERS)
def test_other_methods_say_so_too_and_the_next_decode_is_whole(name, monkeypatch):
    calls, asked = [], ProcessWorker.start

    def start(self, *words):
        calls.append(words)
        if len(calls) == 4:
            os.kill(self.process.pid, signal.SIGKILL)
        asked(self, *words)

    with monkeypatch.context() as patch:
        patch.setattr(ProcessWorker, "start", start)
        with pytest.raises(Refusal) as caught:
            decoded(0, "process", name)
    assert DIED in str(caught.value)
    assert not multiprocessing.active_children()
    assert decoded(0, "process", name) == decoded(0, "inline", name)


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_forty_killed_workers_of_another_method_cost_a_sentence_each(name):
    ends = kills(40, name)
    assert sum(DIED in said for said in ends) > 10
    assert all(DIED in said or said == "written" for said in ends)


@pytest.mark.long
def test_a_hundred_killed_workers_cost_a_sentence_each_and_never_a_wrong_token():
    ends = kills(100)
    assert len(ends) == 100
    assert sum(DIED in said for said in ends) > 50
    assert all(DIED in said or said == "written" for said in ends)


def bench(folder, out) -> int:
    target = ["--target", str(folder / "tiny"), "--device", "cpu", "--dtype", "float32", "--threads", "1"]
    return cli.run(["bench", *target, "--prompts", str(folder / "prompts.jsonl"), "--out", str(out), "--methods",
                    "ar,pearl(depth=2)", "--draft", "first-layers", "--max-new-tokens", "6", "--cost",
                    str(folder / "curve.json"), "--workers", "process"])


@pytest.mark.parametrize("call", [1, 4, 9])
def test_a_bench_whose_worker_was_killed_says_so_and_goes_on_when_called_again(tmp_path, monkeypatch, capsys, call):
    model_folder(tmp_path / "tiny")
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    CostCurve((1, 5, 9), (8,), ((1.0, 1.2, 2.0),)).save(tmp_path / "curve.json")
    calls, asked = [], ProcessWorker.start

    def start(self, *words):
        calls.append(words)
        if len(calls) == call:
            os.kill(self.process.pid, signal.SIGKILL)
        asked(self, *words)

    with monkeypatch.context() as patch:
        patch.setattr(ProcessWorker, "start", start)
        assert bench(tmp_path, tmp_path / "out") == 2
    assert f"specdec: {DIED}" in capsys.readouterr().err
    assert not multiprocessing.active_children()
    assert bench(tmp_path, tmp_path / "out") == 0
    texts: dict = {}
    for one in read_results(tmp_path / "out"):
        texts.setdefault((one.question_id, one.turn), set()).add(one.outcome.tokens)
    assert len(texts) == 4
    assert all(len(some) == 1 for some in texts.values())
