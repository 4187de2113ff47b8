"""`specdec break-even --write`: what another process wrote into a card while this one measured stays there."""

import pytest

from specdec_lib import cli
from specdec_lib.checkpoints.card import read_card, write_card
from specdec_lib.commands import break_even
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
