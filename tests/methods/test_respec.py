"""ReSpec assembled: who drafts when, the parameters, and that the strict form changes no token."""

from dataclasses import replace
from functools import partial

import pytest

from specdec_lib import catalog
from specdec_lib.acceptance import RankMargin, Typical
from specdec_lib.loop import begin, decode
from specdec_lib.trees import stop_when_unlikely
from specdec_lib.types import NO_DICE, ROOT, Budget
from tests.worlds import PROMPT, kit, network_kit, run

STRICT = ["respec", "respec(theta=-1.0)", "respec(theta=99.0)", "respec(key='position', reading='query')",
          "respec+token-recycling"]


def decoded(name, tokens=40, world=None):
    world = world or network_kit(None)
    *_, last = decode(PROMPT, world.target, *catalog.build(name, world), max_new_tokens=tokens)
    return last


def sources(session):
    return [set(round.draft.source) for round in session.rounds if len(round.draft)]


@pytest.mark.parametrize("name", STRICT)
def test_the_strict_output_is_plain_decodings(name):
    plain = run(catalog.build("ar", network_kit(None)), NO_DICE, None, 40, network_kit(None).target)
    assert decoded(name).output == plain


def test_the_first_round_uses_the_head_because_no_entropy_is_known():
    assert decoded("respec(theta=99.0)").rounds[0].budget.source == "eagle2"


def test_one_position_gives_a_chain_and_several_give_a_tree():
    def drafted(name):
        text = begin((1, 2, 0, 1, 2, 1, 1, 2), 20)
        return catalog.build(name, network_kit(None)).what(text, Budget.of("feedback-retrieval", 8, 8, 8), NO_DICE)
    assert all(len(below) == 1 for below in drafted("respec(kept=1,least=0.3)").children.values())
    assert len(drafted("respec(least=0.3)").children[ROOT]) == 2


def test_a_trigger_that_never_fires_uses_the_head_only_and_one_that_always_fires_retrieves_first():
    assert sources(decoded("respec(theta=-1.0)")) == [{"eagle2"}] * len(sources(decoded("respec(theta=-1.0)")))
    always = decoded("respec(theta=99.0)")
    assert all(round.budget.source == "feedback-retrieval" for round in always.rounds[1:])
    assert {"feedback-retrieval"} in sources(always)


def test_where_no_candidate_remains_the_head_drafts(trained_tokens_alone):
    last = decoded("respec(theta=99.0)")
    without = [round for round in last.rounds[1:] if set(round.draft.source) == {"eagle2"}]
    assert without
    assert all(round.budget.source == "feedback-retrieval" for round in without)


def test_the_head_has_its_own_budget_after_an_empty_retrieval(trained_tokens_alone):
    world = replace(network_kit(None), nodes=3)
    last = decoded("respec(theta=99.0, grow=0, price=0)", world=world)
    drawn = [round.draft for round in last.rounds[1:] if set(round.draft.source) == {"eagle2"}]
    assert drawn
    assert max(map(len, drawn)) == 6 < 12 == last.rounds[-3].budget.nodes


def test_without_a_trained_head_token_recycling_takes_its_place():
    last = decoded("respec+token-recycling(theta=-1.0)", world=kit(None))
    assert {source for found in sources(last) for source in found} == {"token-recycling"}
    assert catalog.missing(catalog.methods()["respec"], kit(None)) == ["eagle"]


def test_sizes_come_from_the_cost_curve_and_the_heads_tree_has_a_stop_rule():
    when = catalog.build("respec", replace(network_kit(None), nodes=6)).when
    assert when.retrieve == Budget.of("feedback-retrieval", 24, 8, 24)
    assert when.model == stop_when_unlikely(Budget.of("eagle2", 5, 4, 12), 0.25)
    when = catalog.build("respec+token-recycling", replace(kit(None), nodes=6)).when
    assert when.retrieve == Budget.of("feedback-retrieval", 24, 8, 24)
    assert when.model == Budget.of("token-recycling", 6, 8, 6)


def test_the_relaxed_form_takes_the_parameters_of_either_rule():
    build = partial(catalog.build, kit=network_kit(None))
    assert build("respec-relaxed(rule='typical', eps=0.2, delta=0.5)").how.rule == Typical(0.2, 0.5)
    assert build("respec-relaxed(rank=2, margin=0.7)").how.rule == RankMargin(2, 0.7)


def test_only_the_relaxed_form_is_lossy():
    assert catalog.methods()["respec"].lossless
    assert catalog.methods()["respec+token-recycling"].lossless
    assert not catalog.methods()["respec-relaxed"].lossless


def test_the_relaxed_form_with_the_strict_rule_equals_the_strict_form():
    assert decoded("respec-relaxed(rule='strict')").output == decoded("respec").output


def test_longest_bounds_the_budget_and_the_candidates():
    method = catalog.build("respec(longest=2)", network_kit(None))
    assert method.when.retrieve.depth == 2
    assert method.what.drafters["feedback-retrieval"].longest == 2
