"""`specdec break-even --write`: what another process wrote into a card while this one measured stays there."""

import pytest

from specdec_lib import cli
from specdec_lib.checkpoints.card import read_card, write_card
from specdec_lib.commands import break_even
from specdec_lib.types import Refusal
from tests.small_bench import trained_for
from tests.training.folder import model_folder


@pytest.mark.parametrize("write", [True, False])
def test_a_card_that_changed_while_it_was_measured_keeps_its_change(write, tmp_path, monkeypatch):
    model = model_folder(tmp_path / "tiny")
    shelf, measure = trained_for(model, tmp_path / "shelf"), break_even.break_even

    def meanwhile(*given):
        write_card(shelf, "eagle", {**read_card(shelf, "eagle"), "limits": ["Another one."]})
        return measure(*given)

    monkeypatch.setattr(break_even, "break_even", meanwhile)
    assert cli.run(["break-even", "eagle", *["--write"] * write, "--checkpoints", str(shelf), "--target", str(model),
                    "--depth", "2", "--repeats", "1", "--device", "cpu", "--dtype", "float32", "--threads", "1"]) == 0
    card = read_card(shelf, "eagle")
    assert card["limits"] == ["Another one."]
    assert ("break_even" in card) == write


def test_a_row_has_what_a_part_costs_and_the_rates_that_it_reached():
    cost = {"draft": .2, "verify": 1.1, "tokens_per_target_forward": 1.3}
    sides = {"expected": {}, "measured": cost, "reached": {"teacher-forced": 1.5, "live": None}}
    [row] = break_even.break_even_rows({"eagle": {"depth": 2, "head": sides}})
    assert (row[0], *row[-2:]) == ("head", "0.20 + 1.10 = 1.30", "1.50")
    sides["reached"] = {"teacher-forced": 1.5, "live": 1.25}
    assert next(break_even.break_even_rows({"eagle": {"head": sides}}))[-1] == "1.50, 1.25"
    sides["reached"] = {"live": None}
    assert next(break_even.break_even_rows({"eagle": {"head": sides}}))[-1] == "not measured"


def test_only_a_context_that_was_asked_for_and_does_not_fit_is_refused():
    break_even.refuse_long_context(break_even.CONTEXT, 2)
    break_even.refuse_long_context(64, 128)
    with pytest.raises(Refusal, match="64 tokens"):
        break_even.refuse_long_context(65, 128)
