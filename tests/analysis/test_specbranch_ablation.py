"""SpecBranch's parts: figures of a card and of a run by hand, and sentences that follow the numbers."""

import pytest

from specdec_lib.analysis import specbranch_ablation as parts
from specdec_lib.checkpoints.card import SHIPPED, read_card
from tests.bench.made_up import decodes, report, turn

PEARL, BRANCH, RAD = "pearl(depth=4)", "specbranch(depth=4)", "specbranch(depth=4,predict='h-rad')"


def card(wins, losses):
    table = {"none": [50, 10, 0], "some": [10, 20, 0], "all": [5, 5, 0]}
    return {"measured": {"held-out": {
        "h-rad": {"positions": 100, "accuracy": .7, "predicted as none, some, all": table},
        "majority": {"accuracy": .6, "it alone is right": wins, "the other alone is right": losses}}}}


def rows(discarded, accepted=1):
    return [turn(2, accepted)._replace(ahead=4, branches=1, discarded=discarded)] * 6


def run_of(pearl=3, branch=1, rad=3):
    plain = decodes("ar", *[turn(0, 0)] * 6)
    return report(plain, decodes(PEARL, *rows(pearl)), decodes(BRANCH, *rows(branch)), decodes(RAD, *rows(rad)),
                  decodes("specbranch", *rows(2)), decodes("specbranch(depth=6)", *rows(2)),
                  decodes("sam (warm)", turn(2, 1)), decodes("eagle(depth=3)@svip(h=0.3)", turn(2, 1)))


def test_a_confusion_table_has_a_row_for_each_true_class():
    table = parts.confusion(card(30, 20)["measured"]["held-out"]["h-rad"])
    assert table["some accepted"] == {"predicted none": 10, "predicted some": 20, "predicted all": 0}
    assert list(table) == ["none accepted", "some accepted", "all accepted"]


@pytest.mark.parametrize(("wins", "losses", "said"), [(30, 10, "surely more often"), (10, 30, "surely less often"),
                                                      (21, 20, "not surely more or less often")])
def test_the_sentence_on_accuracy_follows_the_pairs(wins, losses, said):
    assert f"{said} than the majority (60.0%)" in parts.accuracy_sentence(card(wins, losses))
    assert "no length-predictor" in parts.accuracy_sentence(card(wins, losses), "length-predictor")


def test_the_shipped_card_has_what_the_sentences_read():
    shipped = read_card(SHIPPED, "h-rad")
    for other in ("majority", "length-predictor"):
        said = parts.accuracy_sentence(shipped, other)
        assert f"the {other} (" in said
        assert "None" not in said
    mine = shipped["measured"]["held-out"]["h-rad"]
    assert sum(sum(row.values()) for row in parts.confusion(mine).values()) == mine["positions"]
    assert set(parts.accuracy_rows(shipped)) == {"h-rad", "majority", "length-predictor"}


def test_specbranch_is_compared_with_pearl_at_the_same_given_length_alone():
    assert parts.at_equal_length(run_of()) == {BRANCH: PEARL, RAD: PEARL}
    beside = [f"{name}(depth=4,workers='process')" for name in ("pearl", "specbranch")]
    found = report(*(decodes(spec, *rows(2)) for spec in ("ar", PEARL, *beside, BRANCH)))
    assert parts.at_equal_length(found) == {BRANCH: PEARL, beside[1]: beside[0]}


def test_discarded_shares_and_their_paired_difference_by_hand():
    found = parts.ablation_rows(run_of())
    assert found[BRANCH]["discarded share"] == pytest.approx(1 / 2)
    assert found[BRANCH]["less that of its PEARL"] == pytest.approx(1 / 2 - 3 / 4)
    assert found[BRANCH]["that of its PEARL"] == pytest.approx(3 / 4)
    assert found[BRANCH]["to"] < 0
    assert found[RAD]["less that of its PEARL"] == 0


def test_sentences_say_what_was_measured_or_how_to(tmp_path, monkeypatch):
    assert parts.COMMAND in parts.ablation_sentences(str(tmp_path))[0]
    (tmp_path / "summary.json").write_text("{}")
    monkeypatch.setattr(parts, "load_report", lambda run: run_of(rad=9))
    less, more, cut = parts.ablation_sentences(str(tmp_path))
    assert less == (f"{BRANCH} discards surely less than PEARL at the same length: 50.0% against 75.0%, a difference of"
                    " -25.0 points (-25.0 to -25.0).")
    assert more.startswith(f"{RAD} discards surely more than PEARL")
    assert cut == f"{RAD} discards surely more than {BRANCH}: +40.0 points (+40.0 to +40.0)."
    assert parts.predictor_sentences(run_of(branch=3)) == [
        f"{RAD} discards not surely more or less than {BRANCH}: +0.0 points (+0.0 to +0.0)."]
    assert "surely less than" in parts.predictor_sentences(run_of(branch=5))[0]
    monkeypatch.setattr(parts, "load_report", lambda run: report(
        decodes("ar", turn(0, 0)), decodes(PEARL, *rows(3)), decodes(BRANCH, *rows(3))))
    same, missing = parts.ablation_sentences(str(tmp_path))
    assert "not surely more or less than" in same
    assert "no predict='h-rad'" in missing
