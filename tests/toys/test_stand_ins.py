"""A measured run is read; if it is missing, a toy run of the same shape is made and the sentence beside it says so."""

import pytest

from specdec_lib.analysis import diffuspec_ablation, length_policies, parallel_runs, verification_tradeoff
from specdec_lib.toys import stand_ins
from specdec_lib.types import Refusal


def test_a_folder_is_read_and_the_toy_is_not_run(tmp_path):
    assert stand_ins.read_or_toy(str(tmp_path), lambda: ("read", "from here"), pytest.fail) == ("read", "from here")


def test_no_name_gives_the_toy_as_a_missing_folder_does():
    found, said = stand_ins.read_or_toy("", pytest.fail, lambda: "toy")
    assert (found, said) == ("toy", "No run is named, so a toy stands in and its numbers are noise.")


def test_a_missing_folder_gives_the_toy_with_the_folder_and_the_command_in_the_sentence(tmp_path):
    missing = str(tmp_path / "nothing")
    found, said = stand_ins.read_or_toy(missing, pytest.fail, lambda: "toy", "specdec bench --out x")
    assert found == "toy"
    assert said == (f"No run lies at {missing}, so a toy stands in and its numbers are noise."
                    " This measures one: `specdec bench --out x`")


def test_the_ablation_of_a_toy_is_made_from_the_methods_that_the_toy_has(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_ins, "toy_bench", lambda specs: specs)
    found, said = stand_ins.ablation_or_toy(str(tmp_path / "nothing"))
    assert set(diffuspec_ablation.specs_by_cell(found)) == set(diffuspec_ablation.CELLS)
    assert "a toy stands in" in said
    with pytest.raises(Refusal, match="lacks its cell of neither, search, controller"):
        stand_ins.ablation_or_toy("", str(tmp_path / "new"), methods="ar,diffuspec")


def test_policies_of_a_toy_write_plain_decodings_tokens_and_name_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_ins, "POLICY_SPECS", ("ar", "draft-model(depth=2)", "draft-model@tapout"))
    found, said = stand_ins.policies_or_toy(str(tmp_path / "nothing"))
    lines = length_policies.policies_by_drafter(found)["draft-model"]
    assert [one.policy for one in lines] == ["fixed 2", "tapout", "tapout (warm)"]
    assert all(entry["identical_prompts"] == entry["prompts"] for entry in found.entries.values())
    assert length_policies.COMMAND in said


def test_rules_of_a_toy_are_run_at_the_temperature_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_ins, "RULE_SPECS",
                        ("ar", "draft-model", "draft-model@relaxed(sources=('draft-model',))"))
    missing = str(tmp_path / "none")
    found, said = stand_ins.rules_or_toy(missing, 0.7)
    assert found.summary["settings"]["temperature"] == 0.7
    assert len(verification_tradeoff.rule_points(found)) == 2
    assert verification_tradeoff.command_to_run(missing, 0.7) in said
    assert verification_tradeoff.command_to_run("", 0.7).endswith("--out results/verification-sampled")


def test_every_rule_of_the_toy_names_a_drafter_and_a_rule_that_exist():
    found = [verification_tradeoff.parse_rule_spec(spec) for spec in stand_ins.RULE_SPECS[1:]]
    assert {drafter for drafter, *_ in found} == {"draft-model", "sam+token-recycling"}
    assert {rule for _, rule, _ in found} == {"rejection", "match", "relaxed", "typical", "top-beta", "consultant"}


def test_a_parallel_toy_run_holds_both_kinds_of_measured_time_and_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_ins, "PARALLEL_SPECS", ("ar", "pearl", "pearl(workers='thread')"))
    found, said = stand_ins.parallel_or_toy(str(tmp_path / "nothing"))
    kinds = [parallel_runs.check_time(parallel_runs.rounds_of(found, spec)).kind for spec in found.methods]
    assert kinds == ["in turn", "in parallel"]
    assert said.endswith(f"This measures one: `{parallel_runs.COMMAND}`")
