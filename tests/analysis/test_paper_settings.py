"""The papers' settings are written out, every value has its evidence, and none of them is one of ours."""

import pytest

from specdec_lib import catalog
from specdec_lib.analysis import paper_settings
from specdec_lib.analysis.paper_settings import OURS, PAPER, SECOND_HAND, paper_setting, paper_spec

WRITTEN = {"respec(paper)": 'respec(theta=1.5, shape="leave", least=0.5, query=3, key="position", depth=6,'
                            " width=10, nodes=59, copy=60, longest=40, grow=0, price=0)",
           "diffuspec(paper)": "diffuspec(rule='printed', shortest=20, longest=30, growth=10, score='sum')"}


@pytest.mark.parametrize("name", ["respec", "diffuspec"])
def test_a_papers_setting_is_a_spec_that_the_catalogue_takes_and_recognises(name):
    spec = paper_spec(name)
    assert catalog.method_spec(spec).name == name
    assert paper_setting(spec) == f"{name}(paper)"


@pytest.mark.parametrize("name", WRITTEN)
def test_the_setting_that_a_method_documents_is_recognised_without_its_defaults(name):
    assert paper_setting(WRITTEN[name]) == name


@pytest.mark.parametrize("spec", ["respec", "respec(theta=1.5)", "respec(shape='leave')", "diffuspec", "sam",
                                  "diffuspec(rule='printed')", WRITTEN["respec(paper)"].replace("1.5", "2.0"),
                                  WRITTEN["respec(paper)"] + "@typical", "sam (warm)", "respec-relaxed(theta=1.5)"])
def test_one_of_our_settings_is_not_taken_for_a_papers(spec):
    assert paper_setting(spec) is None


def test_what_is_second_hand_is_named_and_nothing_of_respec_is_said_to_be_read_in_its_paper():
    assert {known.evidence for known in paper_settings.RESPEC.values()} == {SECOND_HAND, OURS}
    assert {known.evidence for known in paper_settings.DIFFUSPEC.values()} == {PAPER}
    rows = {row["parameter"]: row for row in paper_settings.evidence_table("respec", {"theta": 5.0, "nodes": None})}
    assert (rows["nodes"]["ours"], rows["copy"]["ours"]) == ("not fixed", "–")
    assert (rows["theta"]["paper's setting"], rows["theta"]["evidence"], rows["theta"]["ours"]) == (
        "1.5", SECOND_HAND, "5.0")
    assert rows["penalty"]["evidence"] == OURS
