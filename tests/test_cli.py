"""The command line on a random model: what it writes, and that bad input is one sentence and exit code 2."""

import json

import pytest
from typer.main import get_command

from specdec_lib import cli
from specdec_lib.analysis.bench_report import load_report
from specdec_lib.analysis.report_tables import provenance_table
from specdec_lib.bench import options
from specdec_lib.bench.results import read_results
from specdec_lib.cost import curves
from tests.small_bench import (  # noqa: F401
    bench_fixture,
    curve_fixture,
    interrupted,
    model_fixture,
    prompts_fixture,
    refused,
)
from tests.training.folder import model_folder


def test_methods_as_json_has_the_fields_of_the_contract(capsys):
    assert cli.run(["methods", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    fields = {"name", "idea", "source", "lossless", "needs", "available", "missing", "notebook", "parameters", "about"}
    assert all(set(entry) == fields for entry in found)
    assert found[0]["name"] == "ar"
    assert found[0]["available"] is True
    assert found[0]["missing"] == []


def test_methods_and_parts_are_listed_a_line_each(capsys):
    assert cli.run(["methods"]) == 0
    assert capsys.readouterr().out.startswith("ar ")
    assert cli.run(["parts"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == {"when", "what", "how"}


def test_bench_writes_rounds_and_a_summary_with_peers_and_every_method(bench, tmp_path):
    assert cli.run([*bench, "--methods", "ar,draft-model(depth=2)", "--peers", "hf-generate,hf-prompt-lookup"]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary["methods"]) == ["ar", "draft-model(depth=2)"]
    assert summary["target"]["name"] == "tiny"
    for entry in (*summary["methods"].values(), *summary["peers"].values()):
        assert entry["identical_prompts"] == entry["prompts"] == 2     # fp32: transformers' ids and ours, to the last
    assert summary["settings"]["nodes"] == 4
    assert summary["prompts"]["file"] == "prompts.jsonl"
    assert str(tmp_path) not in json.dumps(summary)
    assert (tmp_path / "out" / "rounds.parquet").stat().st_size > 0


@pytest.mark.parametrize("one_token", [("--top-k", "1"), ("--top-p", "1e-6")])
def test_top_k_and_top_p_filter_what_methods_and_transformers_sample(bench, tmp_path, one_token):
    assert cli.run([*bench, "--methods", "ar,sam", "--peers", "hf-generate", "--temperature", "1", *one_token]) == 0
    greedy, folder = tmp_path / "greedy", tmp_path / "out"
    assert cli.run([*bench, "--methods", "ar", "--out", str(greedy)]) == 0
    tokens = {(d.question_id, d.turn): d.outcome.tokens for d in read_results(greedy)}
    decodes = read_results(folder)
    assert {d.method for d in decodes} == {"ar", "sam", "hf-generate"}
    assert all(d.outcome.tokens == tokens[d.question_id, d.turn] for d in decodes)
    shown = {row["what"]: row["value"] for row in provenance_table(load_report(folder))}
    assert one_token[0].strip("-").replace("-", " ") in shown["decoding"]


def test_every_command_that_samples_at_a_temperature_takes_top_k_and_top_p():
    found = {name: {param.name for param in command.params} & {"temperature", "top_k", "top_p"}
             for name, command in get_command(cli.app).commands.items()}
    assert {name for name, options in found.items() if options} == {"generate", "bench", "report"}
    assert all(len(options) in (0, 3) for options in found.values())


def test_every_command_that_encodes_prompts_takes_a_system_turn_and_template_switches():
    found = {name: {param.name for param in command.params} & {"system", "template_switches"}
             for name, command in get_command(cli.app).commands.items()}
    assert {name for name, options in found.items() if options} == {"generate", "bench", "report", "answers", "train"}
    assert all(len(options) in (0, 2) for options in found.values())


def test_a_system_turn_stands_before_every_prompt_and_in_the_report(bench, tmp_path):
    assert cli.run([*bench, "--methods", "ar", "--system", "Be brief.", "--limit", "2"]) == 0
    assert cli.run([*bench, "--methods", "ar", "--limit", "2", "--out", str(tmp_path / "plain")]) == 0
    brief, plain = (read_results(tmp_path / name) for name in ("out", "plain"))
    assert [one.question_id for one in brief] == [one.question_id for one in plain]
    assert all(one.prompt_tokens > other.prompt_tokens for one, other in zip(brief, plain, strict=True))
    shown = {row["what"]: row["value"] for row in provenance_table(load_report(tmp_path / "out"))}
    assert shown["conversations"] == "system turn 'Be brief.'"


def test_a_finished_bench_is_not_run_again_and_other_settings_are_refused(bench, tmp_path, capsys):
    assert cli.run([*bench, "--methods", "ar"]) == 0
    before = (tmp_path / "out" / "rounds.parquet").read_bytes()
    assert cli.run([*bench, "--methods", "ar"]) == 0
    assert (tmp_path / "out" / "rounds.parquet").read_bytes() == before
    assert "seed is 0 there and 7 here" in refused([*bench, "--methods", "ar", "--seed", "7"], capsys)


def test_ctrl_c_exits_130_keeps_finished_prompts_and_says_how_to_go_on(bench, tmp_path, capsys):
    with interrupted():
        assert cli.run([*bench, "--methods", "ar"]) == 130
    assert "the same command continues from there" in capsys.readouterr().err
    assert [part.name for part in (tmp_path / "out" / "parts").iterdir()] == ["00000"]
    assert cli.run([*bench, "--methods", "ar"]) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["methods"]["ar"]["prompts"] == 2


def test_generate_streams_the_answer_and_ends_with_a_line_of_statistics(model, capsys):
    words = ["generate", "--method", "ar", "--target", model, "--dtype", "float32", "--max-new-tokens", "8", "a b c"]
    assert cli.run([str(word) for word in words]) == 0
    out = capsys.readouterr().out.rstrip("\n").splitlines()
    assert len(out) >= 2
    assert out[-1].startswith("[")
    assert "1.00 per forward" in out[-1]
    assert str(model.parent) not in out[-1]
    assert "context ends" not in out[-1]


def test_an_answer_that_the_end_of_the_context_cuts_says_so(tmp_path, capsys):
    words = ["generate", "--target", model_folder(tmp_path / "short", context=5), "--dtype", "float32", "a b c"]
    assert cli.run([str(word) for word in words]) == 0
    assert "forwards (the context ends here)" in capsys.readouterr().out


def test_a_text_longer_than_the_draft_model_holds_is_answered_and_the_line_says_so(tmp_path, capsys):
    target, draft = model_folder(tmp_path / "long"), model_folder(tmp_path / "short", context=4)
    words = ["generate", "--method", "draft-model", "--target", target, "--draft", draft, "--dtype", "float32"]
    for count, said in ((1, False), (8, True)):
        assert cli.run([str(word) for word in (*words, "--max-new-tokens", count, "a b")]) == 0
        assert ("(the draft model holds 4 tokens and drafts none beyond them)" in capsys.readouterr().out) is said


def test_overhead_is_measured_without_a_model_and_kept_with_its_provenance(tmp_path, capsys):
    path = tmp_path / "new" / "overhead.json"
    assert cli.run(["overhead", "--tokens", "300,400", "--nodes", "6", "--out", str(path)]) == 0
    said, kept = capsys.readouterr().out, json.loads(path.read_text())
    assert "milliseconds a round: at 40" in said
    assert len(said.splitlines()) == 4
    assert kept["nodes"] == 6
    assert kept["provenance"]["command"]
    assert str(tmp_path) not in path.read_text()
    assert [size["tokens"] // 100 for size in kept["sizes"]] == [3, 4]
    assert kept["sizes"][0]["what"]["median"] > 0


def test_an_overhead_of_no_size_or_without_a_trigger_is_refused(capsys):
    assert "whole numbers" in refused(["overhead", "--tokens", "many"], capsys)
    assert "no entropy trigger" in refused(["overhead", "--method", "sam"], capsys)


def test_a_cost_curve_is_measured_saved_and_can_be_used(model, tmp_path, capsys):
    path = tmp_path / "deep" / "mine.json"
    words = ["cost", "--target", model, "--dtype", "float32", "--contexts", "8,16", "--repeats", "1", "--out", path]
    assert cli.run([str(word) for word in words]) == 0
    saved = curves.load_curve(path)
    assert saved.contexts == (8, 16)
    assert saved.target == "tiny"
    assert saved.provenance["command"]
    assert f"{saved.nodes()} draft nodes" in capsys.readouterr().out


def test_the_node_budget_of_a_run_comes_from_the_curve_it_is_given(model, curve):
    here = options.prepare(options.RunOptions(target=str(model), dtype="float32", device="cpu", cost=curve))
    world = here.environment(lambda line: None)
    assert world.kit(here.plan, here.saved_curve).nodes == 4
    assert world.kit(here.plan, None).nodes == 8
