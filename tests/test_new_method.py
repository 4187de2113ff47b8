"""What `99_new_method` gives to copy passes the tests of every method, and its claims fail where those tests would."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from specdec_lib import catalog
from specdec_lib.cards import Card
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Draft, up_to_end
from tests import test_contract, test_losslessness

BOOK = Path(__file__).parents[1] / "notebooks" / "99_new_method.ipynb"
CELLS = ["".join(cell["source"]) for cell in json.loads(BOOK.read_text(encoding="utf-8"))["cells"]]


def cell(start: str) -> str:
    """The one cell that has this in it."""
    [found] = [source for source in CELLS if start in source]
    return found


@pytest.fixture
def notebook():
    """The notebook's names up to the card, its cells run in order."""
    names = {"seed": 5, "depth": 3, "length": 16}
    for start in ("from specdec_lib import Budget", "def echo(", "CARD = "):
        exec(cell(start), names)
    return names


@pytest.fixture
def echo(notebook, monkeypatch):
    """The template's drafter in the catalogue, as if its file stood in what/."""
    card = notebook["CARD"]
    monkeypatch.setitem(catalog._cards("what"), card.name, card)
    return card.name


@pytest.mark.parametrize("budget", test_contract.BUDGETS, ids=str)
def test_the_template_keeps_to_its_budget(echo, budget):
    test_contract.test_a_draft_is_a_tree_within_its_budget(echo, budget)


@pytest.mark.parametrize("test", ["test_two_calls_of_a_drafter_give_the_same_draft",
                                  "test_a_draft_depends_on_the_session_alone_in_any_order_of_calls",
                                  "test_no_node_follows_an_end_token"])
def test_the_template_passes_the_contract_of_every_drafter(echo, test):
    getattr(test_contract, test)(echo)


@pytest.mark.parametrize("how", test_losslessness.LOSSLESS_HOW)
def test_the_template_is_lossless_under_every_lossless_rule(echo, how):
    test_losslessness.test_every_drafter_under_every_rule_keeps_the_target_distribution(echo, how)


def too_many_nodes(session, budget, dice):
    return deterministic_chain(up_to_end(session.tokens[-1:] * budget.depth, session.end), "echo")


def past_the_end(session, budget, dice):
    return deterministic_chain(session.tokens[-1:] * min(budget.depth, budget.size), "echo")


def forgetful(asked=[]):                           # noqa: B006 - the fault is that it remembers
    def echo(session, budget, dice):
        asked.append(1)
        return Draft() if len(asked) > 4 else past_the_end(session, budget, dice)
    return echo


def claims(names):
    """Runs the notebook's claims of the contract on the `echo` among these names."""
    for start in ("budgets = [", "again = [", "ended = "):
        exec(cell(start), names)


@pytest.mark.parametrize(("wrong", "claim"), [
    (too_many_nodes, "no draft has more nodes or levels than its budget"),
    (forgetful(), "the same session and budget give the same draft in any order"),
    (past_the_end, "no node follows an end token")])
def test_the_notebooks_claims_find_what_the_contract_tests_find(notebook, wrong, claim):
    claims(notebook)
    with pytest.raises(AssertionError, match=f"this does not hold: {claim}"):
        claims({**notebook, "echo": wrong})


def test_the_notebooks_budgets_are_those_of_the_contract(notebook):
    exec(cell("budgets = ["), notebook)
    assert notebook["budgets"] == test_contract.BUDGETS


def test_the_commands_of_the_template_leave_the_long_tests_out_and_it_shows_the_card():
    commands = re.findall(r"python -m pytest.*test_losslessness.*", cell("## From here to a method"))
    assert len(commands) == 1
    assert '-m "not long"' in commands[0]
    assert "show.source(Card)" in cell("show.source(nothing)")
    assert [field.name for field in fields(Card)][:4] == ["name", "idea", "source", "make"]
