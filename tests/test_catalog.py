"""The catalogue finds cards; specs name methods with parameters and policies."""

import re
import sys

import pytest

from specdec_lib import catalog, cli, what
from specdec_lib.bench.spec_trial import try_specs
from specdec_lib.cards import Card, Kit
from specdec_lib.how.match import Match
from specdec_lib.how.relaxed import Relaxed
from specdec_lib.loop import decode
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal
from specdec_lib.when.confidence import Confidence
from specdec_lib.when.fixed import Fixed
from specdec_lib.when.svip import Svip
from tests.worlds import PROMPT, TARGET, kit, network_kit


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


def test_a_lossy_rule_that_a_parameter_names_makes_the_method_lossy():
    lossless = {spec: catalog.card_of(spec).lossless for spec in
                ("specdiff2", "specdiff2(how='match')", "specdiff2(how='typical')", "specdiff2(how='consultant')")}
    assert list(lossless.values()) == [True, True, False, False]


def test_what_a_card_leaves_to_remember_is_told_by_the_spec():
    learns = {spec: catalog.card_of(spec).learns_across_prompts for spec in
              ("draft-model@heuristic", "draft-model@heuristic(remember=True)", "draft-model@tapout(remember=False)",
               "draft-model@confidence(refit=True)", "draft-model@confidence(refit=True,remember=True)", "respec",
               "respec+memory", "respec+memory@tapout(remember=False)")}
    assert list(learns.values()) == [False, True, False, False, True, False, True, True]


@pytest.mark.parametrize("spec", [
    "sam+token-recycling(nodes=-1)", "sam+token-recycling(width=0)", "sam+eagle2(copy=-1)", "respec(depth=-1)",
    "respec(width=0)", "respec(nodes=-1)", "eagle2(width=0)", "ddtree(width=-1)", "draft-model@confidence(depth=-1)",
    "respec@entropy-trigger(model_width=-1)", "respec@coin(nodes=-1)",
    "token-recycling@branch-point(width=2147483647)", "specdiff2@fixed(width=1001)"])
def test_impossible_sizes_of_a_draft_are_refused_before_the_first_round(spec):
    with pytest.raises(Refusal, match="depth >= 0, width from 1 to 1,000 and nodes >= 0"):
        catalog.build(spec, network_kit())


@pytest.mark.parametrize("spec", ["respec@match-length", "sam+eagle2@coin(model='x')", "respec@one-source(source='x')"])
def test_a_policy_that_names_a_drafter_of_another_method_is_refused_before_anything_is_loaded(spec):
    with pytest.raises(Refusal, match="the budget names the drafter .* one of these"):
        try_specs([catalog.method_spec(spec)], None)


@pytest.mark.parametrize("spec", [
    "block-diffusion(block=129)", "ddtree(block=129)", "diffusion-draft(depth=65)", "diffuspec(block=2147483647)",
    "specdiff(depth=65)", "specdiff2(depth=65)", "specdiff2(chains=2147483647)"])
def test_a_draft_that_no_context_holds_is_refused_before_the_first_round(spec):
    with pytest.raises(Refusal, match="the target's context of 128|draft fewer than 64|from 1 to 1,000"):
        catalog.build(spec, network_kit())


def test_commas_inside_brackets_do_not_split_a_list():
    assert split_specs("ar, sam(a=1,b=2),x") == ["ar", "sam(a=1,b=2)", "x"]


@pytest.mark.parametrize(("spec", "word"), [
    ("nonsense", "no method named"), ("ar(depth=3)", "no parameter"), ("draft-model(depth=", "not a name"),
    ("draft-model@nonsense", "no policy"), ("draft-model@fixed@svip", "one decides"), ("ar@eagle2", "no policy"),
    ("draft-model@", "no policy"), ("draft-model@svip(g=1)", "no parameter"), ("draft-model(3)", "not a name")])
def test_a_wrong_spec_is_refused_in_a_sentence(spec, word):
    with pytest.raises(Refusal, match=word):
        catalog.build(spec, kit())


@pytest.mark.parametrize(("name", "hint"), [
    ("pld", "it is prompt-lookup here"), ("lookup", "it is prompt-lookup here"),
    ("Suffix", "it is suffix-decoding here"),
    ("Arctic", "it is suffix-decoding here"),
    ("rest(nodes=3)", "suffix-decoding with --store FILE comes nearest to it"),
    ("medusa", "it is not implemented here"), ("lookahead@svip", "it is not implemented here")])
def test_a_name_that_the_field_uses_is_refused_with_what_it_is_here(name, hint):
    with pytest.raises(Refusal, match=rf" \({hint}\); there are: ar, "):
        catalog.method_spec(name)


@pytest.mark.parametrize(("spec", "meant"), [("respek", "respec"), ("Eagle_2", "eagle2"), ("sam-egle2", "sam+eagle2")])
def test_a_misspelt_method_is_refused_with_the_one_that_was_meant(spec, meant):
    with pytest.raises(Refusal, match=rf" \(did you mean {re.escape(meant)}\?\); there are: ar, "):
        catalog.method_spec(spec)


def test_no_method_has_a_name_that_is_refused_with_a_hint():
    assert not catalog.methods().keys() & catalog.ELSEWHERE.keys()


@pytest.mark.parametrize(("spec", "word"), [
    ("specdiff2(how='svip')", "how of specdiff2 .* room how"), ("pearl(drafter='match')", "'match' is none"),
    ("pearl(drafter='svip')", "drafter of pearl .* room what"), ("pearl(drafter='yodel')", "'yodel' is none"),
    ("double(retriever='svip')", "retriever of double .* room what"),
    ("diffuspec(drafter='svip')", "room what"), ("ddtree(drafter='match')", "room what"),
    ("draft-model@relaxed(strict='eagle')", "strict of relaxed .* room how"),
    ("draft-model@tapout(arms=['match'])", "arms of tapout .* room when")])
def test_a_part_of_another_room_is_refused_before_anything_is_made(spec, word):
    with pytest.raises(Refusal, match=word):
        catalog.method_spec(spec)


@pytest.mark.parametrize(("spec", "lacks"), [
    ("pearl(drafter='recorded')", "recorded cannot be made: recording is missing"),
    ("ddtree(drafter='recorded')", "recorded cannot be made: recording is missing"),
    ("double(retriever='recorded')", "recorded cannot be made: recording is missing"),
    ("pearl(drafter='spec-drafter')", "spec-drafter cannot be made: the checkpoint g2p-drafter is missing"),
    ("sam@tapout(arms=['oracle'])", "oracle cannot be made: recording is missing")])
def test_what_a_part_named_by_a_parameter_lacks_is_refused_as_well(spec, lacks):
    with pytest.raises(Refusal, match=lacks):
        catalog.build(spec, network_kit())


def test_a_part_that_another_part_names_is_of_its_room_too():
    with pytest.raises(Refusal, match="drafter of lengthened .* room what, and 'svip' is none"):
        catalog.make_part("lengthened", kit(), drafter="svip")


def test_generate_ends_with_one_sentence_on_a_part_of_another_room(capsys):
    assert cli.run(["generate", "--method", "pearl(drafter='svip')", "a b"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "'svip' is none" in line


@pytest.mark.parametrize("spec", [
    "pearl(drafter='eagle')", "pearl(drafter='slot-tree')", "pearl(drafter='lengthened')", "double(retriever='eagle2')",
    "pearl@adaeagle", "specbranch@adaeagle", "duodecoding@adaeagle(longest=3)",
    "pearl@tapout(arms={'adaeagle':{'combined':True}})"])
def test_hidden_states_are_not_read_where_the_target_has_computed_none(spec):
    with pytest.raises(Refusal, match="drafts after tokens that the target has not read"):
        catalog.method_spec(spec)


@pytest.mark.parametrize("spec", ["pearl(depth=3)", "pearl(depth=3, drafter='suffix-automaton')@svip",
                                  "pearl(depth=3, drafter='early-exit')", "pearl(depth=3, drafter='diffusion-lm')",
                                  "ppsd@adaeagle", "specbranch(depth=3, predict='length')"])
def test_the_rounds_of_a_parallel_method_count_every_forward_of_the_target(spec):
    world = network_kit(None)
    *_, session = decode(PROMPT, world.target, *catalog.build(spec, world), max_new_tokens=20)
    assert world.target.forwards == 1 + len(session.rounds), "the prompt's, and one a round"


@pytest.mark.parametrize("name", sorted(
    name for room in ("when", "what") for name, card in catalog.parts()[room].items()
    if not catalog.missing(card, network_kit())))
def test_a_card_says_whether_its_part_reads_hidden_states(name):
    world = network_kit()
    world.part(name)
    cards = catalog.with_parts([catalog.part_card(name)])
    assert bool(world.target.cache.taps) == any(card.reads_states for card in cards)


BAD = {"wrong_field": ("from specdec_lib.cards import Card\n\nCARD = Card('w', idea='', source='', maker=print)\n",
                       r"line 3: TypeError: .*unexpected keyword argument 'maker'"),
       "no_card": ("CARD = 'echo'\n", "TypeError: CARD is a Card, got str"),
       "text_for_parts": ("from specdec_lib.cards import Card\nCARD = Card('t', 'i', 's', print, parts='eagle')\n",
                          "line 2: TypeError: parts is a tuple of texts, got 'eagle'"),
       "no_make": ("from specdec_lib.cards import Card\nCARD = Card('n', 'i', 's', make=None)\n",
                   "line 2: TypeError: make is a function whose first parameter is the kit, got None"),
       "no_kit": ("from specdec_lib.cards import Card\nCARD = Card('k', 'i', 's', make=lambda: None)\n",
                  "line 2: TypeError: make is a function whose first parameter is the kit, got .*lambda"),
       "no_name": ("from specdec_lib.cards import Card\nCARD = Card('a b', 'i', 's', make=print)\n",
                   "line 2: ValueError: a card's name .* got 'a b'"),
       "no_python": ("CARD = Card(\n", "line 1: SyntaxError"),
       "no_module": ("import nowhere_at_all\n", "line 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
       "taken": ("from specdec_lib.cards import Card\nCARD = Card('eagle', 'i', 's', make=lambda kit: None)\n",
                 "ValueError: another file has a card named eagle")}


@pytest.fixture
def with_bad_cards(tmp_path, monkeypatch):
    """A catalogue with every bad card among the parts *what*, and a good one."""
    for name, (text, _) in BAD.items():
        (tmp_path / f"zz_{name}.py").write_text(text)
    (tmp_path / "zz_good.py").write_text("from specdec_lib.cards import Card\nCARD = Card('good', 'i', 's', "
                                         "make=lambda kit: None)\n")
    monkeypatch.setattr(what, "__path__", [*what.__path__, str(tmp_path)])
    catalog.read_cards.cache_clear()
    yield
    monkeypatch.undo()
    catalog.read_cards.cache_clear()
    for name in [name for name in sys.modules if name.startswith("specdec_lib.what.zz_")]:
        del sys.modules[name]


def test_a_bad_card_is_named_in_one_sentence_and_the_others_work(with_bad_cards, capsys):
    assert {"good", "eagle"} <= catalog.parts()["what"].keys()
    assert cli.run(["methods"]) == 0
    listed = capsys.readouterr()
    assert "eagle2" in listed.out
    said = listed.err.splitlines()
    assert len(said) == len(BAD)
    for name, (_, wrong) in BAD.items():
        [line] = [line for line in said if f"zz_{name}.py" in line]
        assert re.fullmatch(rf"specdec_lib/what/zz_{name}\.py is left out: {wrong}.*; correct it, the other cards work",
                            line)


def test_an_unknown_name_says_which_cards_were_left_out(with_bad_cards):
    with pytest.raises(Refusal, match=r"no part named 'yodel'; there are: .*zz_no_python\.py is left out"):
        catalog.part_card("yodel")


def test_every_card_of_the_package_can_be_used():
    assert catalog.left_out() == []


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
