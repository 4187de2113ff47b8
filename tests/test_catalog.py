"""The catalogue finds cards; specs name methods with parameters and policies."""

import pytest

from specdec_lib import catalog
from specdec_lib.cards import Card, Kit
from specdec_lib.how.match import Match
from specdec_lib.how.relaxed import Relaxed
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal
from specdec_lib.when.confidence import Confidence
from specdec_lib.when.fixed import Fixed
from specdec_lib.when.svip import Svip
from tests.worlds import TARGET, kit


def test_plain_decoding_is_the_first_method():
    assert list(catalog.methods())[0] == "ar"


def test_a_spec_carries_parameters_and_a_policy():
    method = catalog.build("draft-model(depth=2)", kit())
    assert method.when == Fixed(2)
    assert catalog.build("draft-model@confidence(threshold=0.3)", kit()).when == Confidence(3, .3)


def test_a_method_with_a_policy_that_learns_across_prompts_learns_too():
    learns = {spec: catalog.card_of(spec).learns_across_prompts for spec in
              ("draft-model", "draft-model@svip(h=0.2)", "draft-model@tapout", "eagle@tapout(bandit='thompson')")}
    assert list(learns.values()) == [False, False, True, True]
    assert not catalog.methods()["draft-model"].learns_across_prompts


def test_a_rule_of_verification_may_stand_behind_the_at_too_with_a_policy_or_alone():
    method = catalog.build("draft-model@relaxed(rule='strict')@svip", kit())
    assert isinstance(method.how, Relaxed)
    assert isinstance(method.when, Svip)
    assert isinstance(catalog.build("draft-model(depth=2)@match", kit()).how, Match)


def test_a_method_with_a_lossy_rule_is_lossy_and_with_a_lossless_one_no_better_than_before():
    lossless = {spec: catalog.card_of(spec).lossless for spec in
                ("eagle", "eagle@svip", "eagle@match", "eagle@svip@relaxed", "eagle@relaxed", "respec-relaxed@match")}
    assert list(lossless.values()) == [True, True, True, False, False, False]


def test_what_a_card_leaves_to_remember_is_told_by_the_spec():
    learns = {spec: catalog.card_of(spec).learns_across_prompts for spec in
              ("draft-model@heuristic", "draft-model@heuristic(remember=True)", "draft-model@tapout(remember=False)",
               "draft-model@confidence(refit=True)", "draft-model@confidence(refit=True,remember=True)", "respec",
               "respec+memory", "respec+memory@tapout(remember=False)")}
    assert list(learns.values()) == [False, True, False, False, True, False, True, True]


def test_commas_inside_brackets_do_not_split_a_list():
    assert split_specs("ar, sam(a=1,b=2),x") == ["ar", "sam(a=1,b=2)", "x"]


@pytest.mark.parametrize(("spec", "word"), [
    ("nonsense", "no method named"), ("ar(depth=3)", "no parameter"), ("draft-model(depth=", "not a name"),
    ("draft-model@nonsense", "no policy"), ("draft-model@fixed@svip", "one decides"), ("ar@eagle2", "no policy"),
    ("draft-model@", "no policy"), ("draft-model@svip(g=1)", "no parameter"), ("draft-model(3)", "not a name")])
def test_a_wrong_spec_is_refused_in_a_sentence(spec, word):
    with pytest.raises(Refusal, match=word):
        catalog.build(spec, kit())


def test_a_method_without_its_part_is_listed_with_what_it_lacks():
    lonely = Card("lonely", "an idea", "a source", make=lambda kit: None, parts=("no-such-part", "match"))
    assert catalog.missing(lonely) == ["no-such-part"]


def test_a_part_that_needs_a_draft_model_is_missing_without_one():
    bare = Kit(TARGET, parts=catalog.make_part)
    assert catalog.missing(catalog.methods()["draft-model"], bare) == ["draft"]
    with pytest.raises(Refusal, match="draft"):
        catalog.build("draft-model", bare)


def test_names_are_unique_across_the_three_rooms():
    names = [name for room in catalog.parts().values() for name in room]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("name", "sentence"), [
    ("eagle", "eagle cannot be made: the checkpoint eagle is missing (`specdec train eagle` makes it)"),
    ("early-exit", "early-exit cannot be made: the checkpoint early-exit is missing"),
    ("draft-model", "draft-model cannot be made: draft is missing (--draft NAME)")])
def test_a_refusal_names_the_command_that_makes_a_method_available(name, sentence):
    with pytest.raises(Refusal) as refusal:
        catalog.build(name, Kit(TARGET, parts=catalog.make_part))
    assert sentence in str(refusal.value)
