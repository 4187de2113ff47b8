"""What stands beside every result, and what must not."""

import getpass
import json
from pathlib import Path

from specdec_lib.bench import provenance


def test_provenance_holds_command_commit_versions_machine_and_date():
    about = provenance.provenance(["specdec", "bench"])
    assert set(about) == {"created", "command", "commit", "changed", "versions", "machine"}
    assert about["command"] == "specdec bench"
    assert about["created"].endswith("+00:00")
    assert about["versions"]["torch"]
    assert about["machine"]["cores"] >= 1


def test_a_word_too_long_to_be_a_file_name_stays_as_it_is():
    assert provenance.without_folders("sam," * 200) == "sam," * 200


def test_paths_are_cut_to_file_names_and_hub_names_stay_whole():
    argv = ["/opt/env/bin/specdec", "bench", "--out=/home/me/run", "--prompts", "../here/p.jsonl", "--target",
            "owner/model", "say this/that to me"]
    assert provenance.command(argv) == ("specdec bench --out=run --prompts p.jsonl --target owner/model"
                                        " say this/that to me")


def test_nothing_names_the_person_or_the_folder():
    text = json.dumps(provenance.provenance([str(Path.cwd() / "specdec"), "bench", str(Path.cwd() / "p.jsonl")]))
    assert str(Path.cwd()) not in text
    assert f"/{getpass.getuser()}" not in text


def test_our_own_entry_is_named_as_it_is_installed():
    assert provenance.command(["/some/where/specdec_lib/cli.py", "train", "eagle"]) == "specdec train eagle"
    assert provenance.command(["/usr/bin/specdec", "bench"]) == "specdec bench"
    assert provenance.command(["/else/where/cli.py", "bench"]) == "cli.py bench"
    assert provenance.command([]) == ""
