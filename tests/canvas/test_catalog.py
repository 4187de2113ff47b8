"""Methods of the canvas by spec, and the reference that a lossless one is compared with."""

from pathlib import Path

import pytest

from specdec_lib.canvas.catalog import canvas_cards, canvas_spec, canvas_specs, reference_of, with_references
from specdec_lib.canvas.worlds import WORLDS, open_world
from specdec_lib.specs import write_part
from specdec_lib.types import Refusal

NAMES = ["stepwise", "cached-blocks", "factor", "parallel", "remask", "ssd", "threshold", "tolerator", "vote"]


def test_every_file_of_methods_is_a_card_with_idea_and_source():
    cards = canvas_cards()
    assert list(cards) == NAMES
    files = {path.stem for path in Path(__file__).parents[2].glob("specdec_lib/canvas/methods/[a-z]*.py")}
    assert files == {name.replace("-", "_") for name in NAMES}
    assert all(card.idea and card.source and card.notebook for card in cards.values())
    assert [name for name, card in cards.items() if card.lossless] == ["stepwise", "ssd"]


@pytest.mark.parametrize(("text", "said"), [("oak", "there is no canvas method named 'oak'"),
                                            ("ssd(branches=3)", "no parameter 'branches'"),
                                            ("ssd(rows=2.5)", "ssd cannot take rows=2.5"),
                                            ("ssd(rows=True)", "ssd cannot take rows=True"),
                                            ("ssd(3", "is not a name")])
def test_a_wrong_spec_is_refused_in_one_sentence(text, said):
    with pytest.raises(Refusal, match=said.replace("(", r"\(")):
        canvas_spec(text)


def test_a_list_is_refused_where_it_is_empty_or_names_one_twice():
    for text in ("", " , "):
        with pytest.raises(Refusal, match="at least one"):
            canvas_specs(text)
    with pytest.raises(Refusal, match="twice"):
        canvas_specs("ssd(rows=2),stepwise,ssd(rows=2)")


def test_ssd_is_compared_with_stepwise_decoding_in_its_order_and_blocks():
    specs = canvas_specs("ssd(rows=2),ssd(rows=4, tree='jump'),ssd(order='margin', block=4),parallel(k=2),"
                         "ssd(order='confidence')")
    assert [reference_of(spec) and write_part(reference_of(spec)) for spec in specs] == [
        "stepwise", "stepwise", "stepwise(order='margin', block=4)", None, "stepwise"]
    assert [write_part(spec) for spec in with_references(specs)] == [
        "stepwise", "ssd(rows=2)", "ssd(rows=4, tree='jump')", "stepwise(order='margin', block=4)",
        "ssd(order='margin', block=4)", "parallel(k=2)", "ssd(order='confidence')"]
    late = canvas_specs("parallel,ssd,stepwise")
    assert [write_part(spec) for spec in with_references(late)] == ["parallel", "stepwise", "ssd"]
    assert with_references(canvas_specs("stepwise,ssd")) == canvas_specs("stepwise,ssd")


def test_worlds_are_opened_by_name_and_a_limit_only_cuts_the_list():
    assert set(WORLDS) == {"table", "sudoku", "text"}
    with pytest.raises(Refusal, match="there is no world named 'chess'"):
        open_world("chess", 1)
    with pytest.raises(Refusal, match="at least 1"):
        open_world("table", 0)
    few, many = open_world("table", 3), open_world("table", 9)
    assert many.tasks[:3] == few.tasks
