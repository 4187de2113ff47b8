"""If the README says it, it is run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from specdec_lib import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def commands(word: str) -> list[list[str]]:
    """Every command line of the README that starts with this word."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith(word + " ")]


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.splitlines()[0])
def test_every_snippet_runs(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    tokens, forwards = map(int, re.search(r"(\d+) tokens in (\d+) forwards", done.stdout).groups())
    assert 0 < forwards < tokens                       # the drafts were of use


LONG = ("report", "train", "answers", "sweep")     # minutes each; tests/test_cli_train.py and tests/sweep run theirs


@pytest.mark.parametrize("words", [words for words in commands("specdec") if words[1] not in LONG], ids=" ".join)
def test_every_command_runs(words, tmp_path):
    if "--out" in words:
        words[words.index("--out") + 1] = str(tmp_path / "out")
    done = subprocess.run([sys.executable, "-m", "specdec_lib.cli", *words[1:]], capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() or (tmp_path / "out").exists()


def help_of(name: str, capsys) -> str:
    """What `specdec NAME --help` prints, in this process: each start of Python takes seconds."""
    assert cli.run([name, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", LONG)
def test_a_long_command_has_the_options_that_it_is_shown_with(name, capsys):
    said = help_of(name, capsys)
    named = {word for words in commands("specdec") if words[1] == name for word in words if word.startswith("--")}
    assert named
    assert all(word in said for word in named)


def test_every_option_named_beside_training_is_one_of_train_or_of_the_methods_that_use_its_drafters(capsys):
    helps = [help_of(name, capsys) for name in ("train", "report", "canvas")]
    told = README.partition("## Train drafters")[2].partition("\n## ")[0].rpartition("```")[2]
    named = set(re.findall(r"`(--[a-z-]+)", told))
    known = set(re.findall(r"^  (--[a-z-]+)", "\n".join(helps), re.M))
    assert len(named) > 5
    assert named <= known


def test_every_drafter_named_can_be_trained():
    from specdec_lib.training.recipes import NAMES

    told = README.partition("## Train drafters")[2].partition(" can be trained")[0].rpartition("```")[2]
    assert set(re.findall(r"`([a-z-]+)`", told)) == set(NAMES)


def test_every_make_target_named_exists():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z][a-z-]*)", README)):
        assert re.search(rf"^{target}:", makefile, re.M), f"make {target} is in the README and not in the Makefile"


def test_every_path_named_exists():
    named = re.findall(r"^(\w+/)", README, re.M) + re.findall(r"`(notebooks/[\w.]+ipynb)`", README)
    for path in [*named, *re.findall(r"\]\(([\w/.]+)\)", README)]:
        assert (ROOT / path).exists(), f"the README names {path}"
    for room in re.findall(r"^  (\w+/) ", README, re.M):
        assert (ROOT / "specdec_lib" / room).is_dir(), f"the README names {room}"
