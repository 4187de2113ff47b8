"""If the README or a page of `docs/` says it, it is run."""

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from specdec_lib import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = {path: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
TRAINING = PAGES[ROOT / "docs" / "training.md"]


def blocks(language: str) -> list[str]:
    """The code in this language of all pages, each once."""
    found = [block for text in PAGES.values() for block in re.findall(rf"```{language}\n(.*?)```", text, re.S)]
    return list(dict.fromkeys(found))


def commands(word: str) -> list[list[str]]:
    """Every command line of the pages that starts with this word."""
    lines = dict.fromkeys(line for block in blocks("sh") for line in block.splitlines())
    return [shlex.split(line, comments=True) for line in lines if line.startswith(word + " ")]


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.splitlines()[0])
def test_every_snippet_runs(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    tokens, forwards = map(int, re.search(r"(\d+) tokens in (\d+) forwards", done.stdout).groups())
    assert 0 < forwards < tokens                       # the drafts were of use


LONG = ("report", "train", "answers", "sweep")     # minutes each; tests/test_cli_train.py and tests/sweep run theirs


@pytest.mark.parametrize("words", [words for words in commands("specdec") if words[1] not in LONG], ids=" ".join)
def test_every_command_runs(words, tmp_path, capsys):
    """In this process, as all such: each start of Python takes seconds."""
    out = tmp_path / "out"
    given = [str(out) if before == "--out" else word for before, word in pairwise(words)]
    code, said = cli.run(given), capsys.readouterr()
    assert code == 0, said.err
    assert said.out.strip() or out.exists()


def help_of(name: str, capsys) -> str:
    """What `specdec NAME --help` prints."""
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
    named = set(re.findall(r"`(--[a-z-]+)", TRAINING))
    known = set(re.findall(r"^  (--[a-z-]+)", "\n".join(helps), re.M))
    assert len(named) > 5
    assert named <= known


def test_every_drafter_named_can_be_trained():
    from specdec_lib.training.recipes import NAMES

    told = TRAINING.partition("## Which drafters")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", told, re.M)) == set(NAMES)


def test_every_make_target_named_exists():
    makefile = (ROOT / "Makefile").read_text()
    for path, text in PAGES.items():
        for target in set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.M)):
            assert re.search(rf"^{target}:", makefile, re.M), f"make {target} is in {path.name} and not in the Makefile"


@pytest.mark.parametrize("path", [*PAGES, *sorted((ROOT / "data" / "results").glob("*.md")), ROOT / "CONTRIBUTING.md"],
                         ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_and_notebook_named_exists(path):
    text = path.read_text()
    for link, anchor in re.findall(r"\]\(([\w/.-]*)(?:#([\w-]+))?\)", text):
        linked = (path.parent / link).resolve() if link else path
        assert linked.exists(), f"{path.name} links to {link}"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", linked.read_text(), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}, anchor
    for notebook in re.findall(r"`(notebooks/[\w.]+ipynb)`", text):
        assert (ROOT / notebook).exists(), f"{path.name} names {notebook}"


def test_every_page_is_linked_from_the_readme_and_every_folder_of_the_tree_exists():
    for path in PAGES:
        assert path.name == "README.md" or f"](docs/{path.name})" in README
    tree = PAGES[ROOT / "docs" / "house.md"].partition("```")[2].partition("```")[0]
    for folder in re.findall(r"^(\w+/) ", tree, re.M):
        assert (ROOT / folder).is_dir(), f"the tree names {folder}"
    rooms = re.findall(r"^  (\w+)/ ", tree, re.M)
    assert set(rooms) == {path.name for path in (ROOT / "specdec_lib").iterdir() if (path / "__init__.py").exists()}


def test_the_commands_of_the_readme_stay_few():
    assert len(README.splitlines()) < 200, "the README is read whole: what only some need is for a page of docs/"
