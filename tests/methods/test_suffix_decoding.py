"""SuffixDecoding assembled, alone and before EAGLE-2: plain decoding's tokens in fewer rounds."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.index.store_build import build_store
from specdec_lib.loop import decode
from specdec_lib.memory.answers import earlier_answers
from specdec_lib.types import NO_DICE
from tests.worlds import PROMPT, Scripted, network_kit

WORDS = (1, 2, 3, 4, 5, 6, 7, 8, 9)
COPYING, CYCLE, NEW = WORDS * 2, (20, 21) * 8, (10, 11, 12, 13, 14, 15)
AUTHORS = "suffix-decoding(rule='shares',factor=1.0,least=0.1,price=0.0)"
HYBRID = "suffix-decoding+eagle2"


def sessions(name, script, nodes=4, **kit):
    target = Scripted(WORDS, script)
    method = catalog.build(name, Kit(target, nodes=nodes, parts=catalog.make_part, **kit))
    return list(decode(WORDS, target, *method, max_new_tokens=len(script), dice=NO_DICE, memory=kit.get("memory", {})))


def on_the_network(name, kit):
    return list(decode(PROMPT, kit.target, *catalog.build(name, kit), max_new_tokens=40))[-1]


@pytest.mark.parametrize("name", ["suffix-decoding", AUTHORS])
@pytest.mark.parametrize("script", [COPYING, CYCLE, NEW], ids=["copy", "cycle", "new"])
def test_the_output_is_plain_decodings(name, script):
    assert sessions(name, script)[-1].output == script


def test_a_copied_text_takes_fewer_rounds_and_with_the_authors_bound_more_than_without():
    rounds = {name: len(sessions(name, COPYING)[-1].rounds) for name in ("ar", AUTHORS, "suffix-decoding")}
    assert rounds["suffix-decoding"] < rounds[AUTHORS] < rounds["ar"]


def test_the_authors_drafts_are_as_long_as_their_match():
    last = sessions(AUTHORS, COPYING)[-1]
    sizes = [len(round.draft) for round in last.rounds]
    assert sizes[0] == 0                                                # the prompt repeats nothing
    assert sizes[1] == 1                                                # one token matches


def test_nodes_are_four_times_what_the_curve_allows_unless_they_are_given():
    method = catalog.build("suffix-decoding", Kit(None, nodes=6, parts=catalog.make_part))
    assert (method.when.depth, method.when.width, method.when.nodes) == (24, 8, 24)
    chain = catalog.build("suffix-decoding(width=1,nodes=5)", Kit(None, parts=catalog.make_part))
    assert (chain.when.depth, chain.when.width, chain.when.nodes) == (5, 1, 5)


def test_an_answer_that_was_given_before_takes_fewer_rounds():
    memory, name = {}, "suffix-decoding(remember=1000)"
    first, second = (sessions(name, NEW * 2, memory=memory)[-1] for _ in range(2))
    assert second.output == first.output == NEW * 2
    assert len(second.rounds) < len(first.rounds)


@pytest.mark.parametrize("name", ["suffix-decoding", AUTHORS, "sam"])
@pytest.mark.parametrize("other", [NEW, (10, 11, 30, 13), WORDS], ids=["the answer", "part of it", "the prompt"])
def test_with_a_corpus_the_output_is_plain_decodings(name, other, tmp_path):
    build_store(tmp_path / "store", [other, other])
    rounds = {store: sessions(name, NEW * 2, store=store)[-1] for store in (None, str(tmp_path / "store"))}
    assert {last.output for last in rounds.values()} == {NEW * 2}


def test_a_corpus_that_holds_the_answer_saves_rounds(tmp_path):
    build_store(tmp_path / "store", [NEW])
    alone, beside = (sessions("suffix-decoding", NEW, store=store)[-1] for store in (None, str(tmp_path / "store")))
    assert len(beside.rounds) < len(alone.rounds)


def test_both_learn_across_prompts_where_they_remember():
    learns = {spec: catalog.card_of(spec).learns_across_prompts for spec in
              ("suffix-decoding", "suffix-decoding(remember=9)", HYBRID, f"{HYBRID}(remember=9)")}
    assert list(learns.values()) == [False, True, False, True]


@pytest.mark.parametrize("worth", [0.0, 1.5, 99.0])
def test_before_eagle2_the_output_is_plain_decodings(worth):
    kit = network_kit(None)
    plain = on_the_network("ar", kit).output
    fresh = replace(kit, target=kit.target.fresh(), indexes={})
    assert on_the_network(f"{HYBRID}(worth={worth})", fresh).output == plain


def test_the_head_drafts_where_continuations_are_worth_too_little():
    def sources(worth):
        kit = network_kit(None)
        return {who for round in on_the_network(f"{HYBRID}(worth={worth})", kit).rounds for who in round.draft.source}

    assert sources(99.0) == {"eagle2"}
    assert "suffix-decoding" in sources(0.0)


def test_each_drafter_has_a_budget_of_its_own():
    kit = replace(network_kit(None), nodes=6)
    budget = catalog.build(HYBRID, kit).when.budget
    (copies, own), (head, tree) = budget.sources
    assert (copies, own.depth, own.nodes) == ("suffix-decoding", 24, 24)
    assert (head, tree.depth, tree.nodes) == ("eagle2", 5, 12)
    assert tree.stop is not None
    assert own.stop is None


def test_the_relaxed_rule_is_for_continuations_and_the_strict_one_for_the_head():
    relaxed = catalog.build(f"{HYBRID}@relaxed", network_kit(None)).how
    assert "suffix-decoding" in relaxed.sources
    assert "eagle2" not in relaxed.sources
    assert not catalog.card_of(f"{HYBRID}@relaxed").lossless


def test_parameters_of_the_hybrid_reach_its_drafters():
    kit = network_kit(None)
    drafters = catalog.build(f"{HYBRID}(remember=50,factor=2.0,rule='shares',worth=0.5,counts=0.25)", kit).what.drafters
    continued, head = drafters["suffix-decoding"], drafters["eagle2"]
    assert (continued.factor, continued.rule, continued.worth) == (2.0, "shares", 0.5)
    assert continued.answers is earlier_answers(kit, 50)
    assert head.counts.weight == 0.25
    assert catalog.build(HYBRID, network_kit(None)).what.drafters["eagle2"].counts is None
