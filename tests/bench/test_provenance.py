"""What stands beside every result, and what must not."""

import getpass
import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from specdec_lib.bench import provenance
from tests.bench.test_run import bench, stop_after


def test_provenance_holds_command_commit_versions_machine_and_date():
    about = provenance.provenance(["specdec", "bench"])
    assert set(about) == {"created", "command", "commit", "changed", "versions", "machine"}
    assert about["command"] == "specdec bench"
    assert about["created"].endswith("+00:00")
    assert about["versions"]["torch"]
    assert about["machine"]["cores"] >= 1


def test_a_run_that_another_commit_finished_names_both(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "commit", lambda: {"commit": "aaa", "changed": False})
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path, progress=stop_after(6))
    monkeypatch.setattr(provenance, "commit", lambda: {"commit": "bbb", "changed": False})
    said = [one for one in bench(tmp_path)["settings"]["warnings"] if "The run began" in one]
    assert said == ["The run began with the commit aaa and was finished with bbb."]


def test_a_word_too_long_to_be_a_file_name_stays_as_it_is():
    assert provenance.without_folders("sam," * 200) == "sam," * 200


def test_a_recorded_command_can_be_run_again_and_names_no_folder_of_the_machine(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    argv = ["/opt/env/bin/specdec", "bench", f"--out={tmp_path}/work/results/run", "--prompts", "../here/p.jsonl",
            "--target", f"{tmp_path}/me/my models/tiny", "--store", "/mnt/disk/a.store", "--draft", "owner/model",
            "--methods", 'sam(mode="first")', "this/that"]
    assert provenance.command(argv) == (
        "specdec bench --out=results/run --prompts ../here/p.jsonl --target ~/'my models/tiny' --store .../a.store"
        " --draft owner/model --methods 'sam(mode=\"first\")' this/that")
    assert provenance.without_folders("../here/p.jsonl") == "p.jsonl"
    assert provenance.without_folders("owner/model") == "owner/model"


def test_nothing_names_the_person_or_the_folder():
    text = json.dumps(provenance.provenance([str(Path.cwd() / "specdec"), "bench", str(Path.cwd() / "p.jsonl")]))
    assert str(Path.cwd()) not in text
    assert f"/{getpass.getuser()}" not in text


def test_our_own_entry_is_named_as_it_is_installed():
    assert provenance.command(["/some/where/specdec_lib/cli.py", "train", "eagle"]) == "specdec train eagle"
    assert provenance.command(["/usr/bin/specdec", "bench"]) == "specdec bench"
    assert provenance.command(["/else/where/cli.py", "bench"]) == "cli.py bench"
    assert provenance.command([]) == ""


def test_a_copy_without_its_history_is_of_the_commit_that_its_user_names(monkeypatch):
    monkeypatch.setattr(provenance.subprocess, "run", lambda *a, **k: CompletedProcess(a, 128, "", "not a repository"))
    assert provenance.commit() == {"commit": None, "changed": None}
    monkeypatch.setenv("SPECDEC_COMMIT", "abc123")
    assert provenance.commit() == {"commit": "abc123", "changed": None}
