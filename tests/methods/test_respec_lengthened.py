"""ReSpec with a lengthened head: it copies where `respec` copies, and its head's trees begin as those of `respec`."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.loop import begin, decode
from specdec_lib.types import NO_DICE, Budget, Refusal
from tests.worlds import PROMPT, network_kit, run

NAME = "respec+lengthened"


def decoded(spec, tokens=40, nodes=6):
    world = replace(network_kit(None), nodes=nodes)
    *_, last = decode(PROMPT, world.target, *catalog.build(spec, world), max_new_tokens=tokens)
    return last


@pytest.mark.parametrize("spec", [NAME, f"{NAME}(theta=-1.0)", f"{NAME}(theta=99.0,further=0.001)"])
def test_the_output_is_plain_decodings(spec):
    plain = run(catalog.build("ar", network_kit(None)), NO_DICE, None, 40, network_kit(None).target)
    assert decoded(spec).output == plain


def test_when_to_copy_and_the_heads_budget_are_respecs():
    own, other = (catalog.build(spec, network_kit(None)).when for spec in (NAME, "respec"))
    assert own == other


def test_trees_of_the_head_begin_as_respecs_and_go_on():
    session = begin(PROMPT, 20)
    budget = Budget.of("eagle2", 5, 2, 9)
    one, two = (catalog.build(spec, network_kit(None)).what(session, budget, NO_DICE)
                for spec in ("respec(price=0.3,counts=0.0)", f"{NAME}(price=0.3,counts=0.0,further=0.001)"))
    assert 0 < len(one) < len(two) <= 9
    assert (two.tokens[:len(one)], two.parents[:len(one)]) == (one.tokens, one.parents)
    assert set(two.source[len(one):]) <= {"copied", "recycled"}


def test_copies_of_retrieval_are_not_lengthened():
    mixed = [set(round.draft.source) for round in decoded(f"{NAME}(theta=99.0,further=0.001)").rounds]
    assert {"feedback-retrieval"} in mixed
    assert not any("feedback-retrieval" in found and len(found) > 1 for found in mixed)


def test_a_bad_price_is_refused():
    with pytest.raises(Refusal, match="price"):
        catalog.build(f"{NAME}(further=2)", network_kit(None))


def test_it_is_lossless():
    assert catalog.methods()[NAME].lossless
