"""Every command that a message advises can be typed as it stands."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import typer

import specdec_lib
from specdec_lib.cli import app
from specdec_lib.commands.exit_codes import command_of
from specdec_lib.commands.train_own import OWN_MODELS
from specdec_lib.training.recipes import NAMES

SAMPLE = "eagle"                                   # stands for a name, a path or a number of words
ADVICE = re.compile(r"[`'](specdec [a-z][^`']*)[`']")


def text_of(node: ast.AST) -> str:
    """A string of the source with a sample in every place that is filled in later."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else SAMPLE for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def advised() -> set[str]:
    found = set()
    for path in Path(specdec_lib.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if re.search("[`']specdec ", text):            # parsing takes long, and all workers do it
            for node in ast.walk(ast.parse(text)):
                found.update(ADVICE.findall(text_of(node)))
    return found


def refuse_if_it_cannot_be_typed(line: str) -> None:
    """Raises where the command line does not take these words; nothing is run."""
    _, name, *words = shlex.split(line)
    command = command_of(app).commands[name]
    if not words:
        return                                     # the name of a command in a sentence
    given = command.make_context(name, words).params
    if name == "train":
        assert set(given["names"]) <= {*NAMES, *OWN_MODELS, "NAME"}


@pytest.mark.parametrize("line", sorted(advised()))
def test_advice_is_a_command_with_its_own_options(line):
    refuse_if_it_cannot_be_typed(line)


def test_advice_is_found_and_a_wrong_one_would_be_noticed():
    assert {"specdec train eagle", "specdec methods", "specdec bench"} <= advised()
    for wrong in ("specdec train medusa", "specdec train eagle --target", "specdec measure", "specdec bench --to x"):
        with pytest.raises((AssertionError, KeyError, typer.BadParameter.__base__)):
            refuse_if_it_cannot_be_typed(wrong)
