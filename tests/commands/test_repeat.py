"""`specdec repeat`: a run of a random model is measured again; folders that hold no such run are refused."""

import json
import shutil
from pathlib import Path

import pytest

from specdec_lib import cli
from specdec_lib.analysis.repeated_run import MethodTwice
from specdec_lib.bench.options import RunOptions, prepare
from specdec_lib.bench.plan import Plan
from specdec_lib.commands.repeat import repeat_options, table
from specdec_lib.hub.chat_settings import ChatSettings
from tests.small_bench import (  # noqa: F401
    bench_fixture,
    curve_fixture,
    model_fixture,
    prompts_fixture,
    refused,
)

RESULTS = Path(__file__).parents[2] / "data" / "results"


def test_a_run_is_measured_again_with_its_own_settings_and_writes_the_same_ids(
        bench, model, prompts, tmp_path, capsys):
    assert cli.run([*bench, "--methods", "ar,prompt-lookup(depth=2)", "--peers", "hf-generate"]) == 0
    run, again = tmp_path / "out", tmp_path / "again"
    words = ["repeat", run, "--target", model, "--prompts", prompts, "--out", again]
    capsys.readouterr()
    assert cli.run([str(word) for word in words]) == 0
    told = capsys.readouterr().out
    assert "Answers: the ids are the kept ones, of every method on all 3 turns." in told
    assert "that takes five prompts" in told
    settings = [json.loads((folder / "settings.json").read_text()) for folder in (run, again)]
    assert settings[1].pop("cost") == "cost.json"
    assert settings[0].pop("cost") != "cost.json"
    assert all(one.pop("begun")["created"] for one in settings)
    assert settings[0] == settings[1]
    assert (run / "cost.json").read_bytes() == (again / "cost.json").read_bytes()
    assert "is the run itself" in refused([*words[:-1], run], capsys)


@pytest.mark.parametrize("name", ["respec", "report", "policies", "thresholds-tested", "memory"])
def test_the_options_of_a_shipped_run_make_the_plan_that_it_kept(name, tmp_path):
    kept = json.loads((RESULTS / name / "settings.json").read_text())
    asked = repeat_options(RESULTS / name, tmp_path, {})
    split = {key: tuple(filter(None, asked[key].split(","))) for key in ("peers", "orders")}
    plan = Plan(tuple(kept["methods"]), prompts=asked["prompts"].name, **split,
                **{key: asked[key] for key in ("limit", "dtype", "threads", "max_new_tokens", "repeats", "temperature",
                                               "seed")}).as_dict()
    for key in ("methods", "prompts", "limit", "dtype", "threads", "max_new_tokens", "repeats", "peers", "orders"):
        assert plan.get(key) == kept.get(key), key
    assert ",".join(kept["methods"]) == asked["methods"]


def test_each_number_of_the_table_stands_with_its_own_interval():
    row = MethodTwice("sam", (1.5, 2.5), (1.1, 1.2), ((1.0, 1.3), (0.9, 1.4)), 1.05, (0.8, 1.6), 3, 4)
    assert list(table([row])[0].values()) == ["sam", "1.50", "2.50", "1.10 (1.00 to 1.30)", "1.20 (0.90 to 1.40)",
                                              "1.05 (0.80 to 1.60)", "3 of 4"]


def test_a_run_with_drafting_threads_is_repeated_with_them(tmp_path):
    kept = json.loads((RESULTS / "respec" / "settings.json").read_text())
    (tmp_path / "settings.json").write_text(json.dumps(kept | {"workers": "thread"}))
    assert repeat_options(tmp_path, tmp_path / "again", {})["workers"] == "thread"


def test_what_the_command_line_names_wins_over_the_run():
    assert repeat_options(RESULTS / "respec", Path("elsewhere"), {"limit": 5, "threads": None})["limit"] == 5
    assert repeat_options(RESULTS / "respec", Path("elsewhere"), {"threads": None})["threads"] == 2


@pytest.mark.parametrize(("change", "sentence"), [
    ({"prompts": "mine.jsonl"}, "read the prompts mine.jsonl, which are not shipped: give --prompts"),
    ({"sha256": "0"}, "is not the file of prompts that the run"),
    ({"store": "answers.store"}, "kept only its name: give --store"),
    ({"top_p": "all"}, "only such runs are repeated"),
    ({"draft": 5}, "only such runs are repeated"), ({"limit": "3"}, "only such runs are repeated"),
    ({"limit": 1.5}, "only such runs are repeated"), ({"threads": True}, "only such runs are repeated"),
    ({"prompts": "../mine.jsonl"}, "which are not shipped: give --prompts"),
    ({"prompts": ""}, "which are not shipped: give --prompts"),
    ({"methods": "ar"}, "only such runs are repeated"), ({"peers": [1]}, "only such runs are repeated"),
    ([], "only such runs are repeated"),
    (None, "only such runs are repeated")])
def test_a_folder_that_cannot_be_repeated_is_refused_in_a_sentence(change, sentence, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(RESULTS / "copies", run)
    settings = json.loads((run / "settings.json").read_text())
    if change is None:
        del settings["sha256"]
    (run / "settings.json").write_text(json.dumps({**settings, **change} if isinstance(change, dict) else
                                                  settings if change is None else change))
    assert sentence in refused(["repeat", run, "--out", tmp_path / "again"], capsys)
    assert not (tmp_path / "again").exists()


def asked_again(tmp_path, changes):
    run = tmp_path / "run"
    shutil.copytree(RESULTS / "copies", run)
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps({**settings, **changes}))
    return repeat_options(run, tmp_path / "again", {})


def test_a_sampled_run_is_repeated_with_its_filters(tmp_path):
    filters = {"temperature": 0.7, "top_k": 5, "top_p": 0.9}
    asked = asked_again(tmp_path, filters)
    assert {name: asked[name] for name in filters} == filters


def test_a_run_whose_drafts_were_made_in_turn_is_repeated_in_turn(tmp_path):
    in_turn = Plan(("ar", "pearl"), workers="inline").as_dict()
    asked = asked_again(tmp_path, {"methods": in_turn["methods"], "workers": in_turn.get("workers")})
    assert prepare(RunOptions.of(asked)).plan.workers == "inline"


def test_a_run_is_repeated_in_its_own_conversations(tmp_path):
    chat = {"system": "Be brief.", "template_switches": ["enable_thinking=false", "effort=low"]}
    asked = prepare(RunOptions.of(asked_again(tmp_path, chat))).plan
    assert asked.chat == ChatSettings("Be brief.", {"enable_thinking": False, "effort": "low"})
    assert {name: asked.as_dict()[name] for name in chat} == chat


def test_an_empty_folder_is_no_run(tmp_path, capsys):
    assert "holds no finished run" in refused(["repeat", tmp_path], capsys)
