"""What notebooks show is returned as values, names its tokens, and says the same in plain text."""

import copy
import json
import pickle
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy
import pytest
import torch

from specdec_lib import figures, show
from specdec_lib.analysis import report_text, wording
from specdec_lib.explore import Choices, explore
from specdec_lib.figures.theme import contrast
from specdec_lib.how.match import Match
from specdec_lib.loop import decode
from specdec_lib.models.table import Table
from specdec_lib.trees import deterministic_chain, deterministic_tree
from specdec_lib.types import NO_DICE, Budget, Draft, Lattice, Verdict
from tests.hostile import SCRIPT, running

ALWAYS_NEXT = Table({(): (1, 0, 0), (0,): (0, 1, 0), (1,): (0, 0, 1), (2,): (1, 0, 0)})


def decoded():
    """Two rounds over the cycle a b c, each drafting one right and one wrong token."""
    vocab = show.Vocabulary.of("a b c")
    start = vocab.tokens("a")

    def what(session, budget, dice):
        right = (int(session.tokens[-1]) + 1) % 3
        return deterministic_chain((right, right), "toy")

    for session in decode(start, ALWAYS_NEXT, lambda *_: Budget(2), what, Match(), max_new_tokens=4):
        pass
    return session, vocab


def test_a_strip_marks_what_was_accepted_and_what_the_verdict_added():
    session, vocab = decoded()
    assert repr(show.strip(session, vocab)).splitlines()[0] == "a [b] +c+ [a] +b+"


def test_a_strip_by_round_shows_the_rejected_nodes_too():
    session, vocab = decoded()
    lines = repr(show.strip(session, vocab, by_round=True)).splitlines()
    assert lines[1:3] == ["[b] +c+ ~b~", "[a] +b+ ~a~"]


def test_a_long_prompt_is_cut_and_says_how_much_is_missing():
    session = show.words("a b c d e")
    drawn = show.strip(session, prompt=2)
    assert "3 more prompt tokens" in drawn.html
    assert repr(drawn).startswith("… d e")


def test_one_round_says_how_much_of_it_was_kept():
    session, vocab = decoded()
    assert repr(show.round(session.rounds[0], vocab)).endswith("1 of 2 drafted tokens accepted, 2 emitted")


def test_roles_are_told_apart_without_colour():
    session, vocab = decoded()
    html = show.round(session.rounds[0], vocab).html
    assert "3px solid" in html
    assert "line-through" in html
    assert "3px double" in html


def test_tokens_cannot_inject_html():
    drawn = show.draft(deterministic_chain((0,)), lambda token: "<script>")
    assert "<script>" not in drawn.html
    assert "&lt;script&gt;" in drawn.html


def test_text_from_outside_is_text_wherever_a_notebook_shows_it():
    assert running(f"<p>{SCRIPT}</p>")             # it would run if it were not escaped
    hostile, chain = lambda token: SCRIPT, deterministic_chain((0, 1))
    cells = [SCRIPT, [SCRIPT], {SCRIPT: SCRIPT}, (SCRIPT, 1), None, 0.5]
    session, _ = decoded()
    shown = {
        "cells": show.table([{"name": cell} for cell in cells]),
        "headers": show.table({SCRIPT: {SCRIPT: 1.0, "other": 2.0}}),
        "headers of two levels": show.table({(SCRIPT, 1): {(SCRIPT, SCRIPT): 1.0}}),
        "caption": show.table([{"a": 1}], caption=SCRIPT),
        "strip": show.strip(session, hostile, by_round=True), "round": show.round(session.rounds[0], hostile),
        "draft": show.draft(replace(chain, source=(SCRIPT, SCRIPT)), hostile),
        "tokens": show.tokens([SCRIPT], ["draft"], [SCRIPT], SCRIPT), "check": show.check(SCRIPT, True),
        "text": show.text(SCRIPT), "stack": show.stack(show.text(SCRIPT), SCRIPT),
        "lattice": show.lattice(Lattice(torch.tensor([[0]]), torch.zeros(1, 1)), hostile)}
    assert {name: running(one._repr_html_()) for name, one in shown.items()} == dict.fromkeys(shown, [])
    assert all("boom()" in one._repr_html_() for one in shown.values())


def test_figures_keep_names_from_outside_as_data():
    bars = figures.tokens_per_forward([SCRIPT], [1.5], title=SCRIPT)
    assert running(bars.to_html(include_plotlyjs=False, full_html=False)) == []


def test_a_toy_draft_names_its_tokens_by_itself():
    toy = show.words("the cat sat the cat")
    copied = deterministic_chain(toy.tokens[2:4])
    assert repr(show.draft(copied)).splitlines()[0] == "(sat) (the)"


def test_a_draft_has_one_line_for_each_leaf():
    tree = deterministic_tree([(0, 1), (0, 2)], 5)
    assert len(repr(show.draft(tree)).splitlines()) == 3
    assert repr(show.draft(Draft())).strip() == "the empty draft"


def test_a_word_is_its_token_id_everywhere():
    word = show.words("x y x").tokens[2]
    assert word == 0
    assert hash(word) == hash(0)
    assert json.dumps([word]) == "[0]"
    assert torch.tensor([word]).tolist() == [0]
    assert pickle.loads(pickle.dumps(word)).text == copy.deepcopy(word).text == "x"


def test_a_vocabulary_refuses_a_word_it_does_not_hold():
    with pytest.raises(ValueError, match="'dog' is not in this vocabulary of 2"):
        show.words("dog", vocabulary=show.Vocabulary.of("the cat"))


def test_a_toy_model_gives_the_chances_of_its_text():
    vocab = show.Vocabulary.of("a b c")
    model = show.toy_model("a b a c a b", vocab, order=1, doubt=1.0)
    assert model.rows[0,] == pytest.approx([1 / 6, 3 / 6, 2 / 6])
    assert model.rows[()] == pytest.approx([4 / 9, 3 / 9, 2 / 9])
    with pytest.raises(ValueError, match="doubt > 0"):
        show.toy_model("a", vocab, doubt=0)


def test_a_tree_with_its_verdict_says_how_many_nodes_were_accepted():
    tree = deterministic_tree([(0, 1), (0, 2)], 5)
    figure = show.tree(tree, Verdict.of(tree, (0, 2), 1), show.Vocabulary.of("a b c"))
    assert figure.layout.title.text == "2 of 3 nodes were accepted"
    assert {trace.name: list(trace.text) for trace in figure.data if trace.name}["extra"] == ["b"]


def test_a_lattice_shows_the_best_candidates_of_each_position():
    one = Lattice(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[.7, .3], [.6, .4]]).log())
    assert repr(show.lattice(one, show.Vocabulary.of("a b"), best=1)) == "a 0.70\nb 0.60"


def test_a_map_of_a_lattice_finds_paths_of_tokens_among_the_candidates():
    one = Lattice(torch.tensor([[0, 1], [1, 2]]), torch.tensor([[.7, .3], [.6, .4]]).log())
    figure = show.lattice_map(one, show.Vocabulary.of("a b c"), {"best": (0, 1)}, (1, 0, 2))
    assert [list(row) for row in figure.data[0].text] == [["a", "b"], ["b", "c"]]
    assert figure.layout.title.text == "The target's token is a candidate in 1 of 2 slots, the best in 0"
    assert [trace.name for trace in figure.data if trace.name] == ["best", "the target's tokens"]


def test_a_check_shows_its_sentence_or_raises_it():
    assert repr(show.check("two is even", 2 % 2 == 0)) == "✓ two is even"
    with pytest.raises(AssertionError, match="this does not hold: three is even"):
        show.check("three is even", torch.tensor(False))


def test_the_source_shown_is_the_source_that_runs():
    drawn = show.source(Match)
    assert "class Match" in repr(drawn)
    assert "specdec_lib.how.match" in drawn.html
    assert '"""' not in repr(show.source(deterministic_chain, doc=False))


def test_a_table_keeps_the_order_of_its_rows():
    html = show.table([{"name": "b", "value": 1.23456}, {"name": "a", "value": None}])._repr_html_()
    assert html.index(">b<") < html.index(">a<")
    assert "1.235" in html
    assert "–" in html


def test_a_stack_shows_every_part():
    both = show.stack(show.check("one", True), show.text("two"))
    assert "✓" in both.html
    assert repr(both) == "✓ one\ntwo"


def test_a_stack_of_figures_and_sliders_shows_each_in_its_own_way(monkeypatch):
    monkeypatch.setenv("SPECDEC_EXPLORE", "live")
    line = lambda k: figures.curves([0, 1], {"a": [0, k]}, "x", "y", f"slope {k}")  # noqa: E731
    slider, shown = explore(lambda k: show.text(f"k is {k}"), k=Choices(1, 2)), []
    both = show.stack(show.text("above"), slider, show.stack(line(1), line(2)))
    monkeypatch.setattr("IPython.display.display", shown.append)
    both._ipython_display_()
    assert [type(part).__name__ for part in shown] == ["Html", "VBox", "Figure", "Figure"]
    assert shown[1] is slider
    assert repr(show.stack(show.text("a"), line(3))).startswith("a\nFigure(")


def test_the_page_of_a_stacked_figure_fetches_no_script():
    html = show.stack(show.text("a"), figures.match_lengths([1, 2]))._repr_html_()
    assert "Plotly.newPlot" in html
    assert "https://cdn" not in html


class Inks(HTMLParser):
    """For every text of a page its ink and its paper, as the styles of the elements around it say; None: the page's."""

    def __init__(self):
        super().__init__()
        self.around, self.pairs = [(None, None)], set()

    def handle_starttag(self, tag, attrs):
        style, (ink, paper) = dict(attrs).get("style") or "", self.around[-1]
        ink = (re.search(r"(?:^|[;\s])color:\s*(#\w+)", style) or [None, ink])[1]
        paper = (re.search(r"background(?:-color)?:\s*(#\w+)", style) or [None, paper])[1]
        self.around.append((ink, paper))

    def handle_endtag(self, tag):
        self.around.pop()

    def handle_data(self, data):
        if data.strip():
            self.pairs.add(self.around[-1])


def test_text_is_readable_on_light_and_on_dark_pages():
    session, vocab = decoded()
    chain = replace(deterministic_chain((0, 1)), source=("toy", "toy"))
    shown = [show.strip(session, vocab, by_round=True), show.round(session.rounds[0], vocab), show.draft(chain, vocab),
             show.tokens(list("abcdef"), ["accepted", "rejected", "extra", "draft", "target", "prompt"]),
             show.check("so", True), show.text("so"), show.source(Match), show.source(json.dumps),
             show.lattice(Lattice(torch.tensor([[0]]), torch.zeros(1, 1)), vocab)]
    page = Inks()
    page.feed("".join(one.html for one in shown))
    long = {colour: "#" + "".join(2 * letter for letter in colour[1:]) if len(colour) == 4 else colour
            for pair in page.pairs for colour in pair if colour}
    assert all(paper for ink, paper in page.pairs if ink)       # no ink of our own on a paper of somebody else's
    assert {ink for ink, paper in page.pairs if paper} >= {"#111111"}
    assert min(contrast(long[ink], long[paper]) for ink, paper in page.pairs if ink) >= 4.5


def test_a_part_of_a_character_is_marked_and_explained():
    drawn = show.tokens(["\ufffd", " \ufffd\ufffd", "é"], ["draft"] * 3)
    assert "\ufffd" not in drawn.html + repr(drawn)
    assert repr(drawn).splitlines()[0] == "(◌) ( ◌) (é)"
    assert drawn.html.count("part of a character") == 2


def test_numbers_in_a_table_stand_right_in_digits_of_one_width_and_do_not_wrap():
    html = show.table([{"name": "sam", "speed": 1.25, "span": "1.25 [1.10, 1.40]", "range": "1.10 to 1.40",
                        "same": "12 of 12", "idea": "3 words, or a sentence"},
                       {"name": "ar", "speed": None, "span": "–", "range": "–", "same": "–", "idea": "one token"}])
    right = [rule for rule in re.findall(r"[^{}]*\{[^}]*\}", html._repr_html_()) if "text-align: right" in rule]
    cells = [rule for rule in right if "td.col" in rule]
    assert sorted(set(re.findall(r"td\.col(\d)", "".join(cells)))) == ["1", "2", "3", "4"]
    assert all("tabular-nums" in rule and "nowrap" in rule for rule in cells)
    assert not any("nowrap" in rule for rule in right if rule not in cells), "a long heading wraps"


def test_an_interval_in_any_of_our_forms_stays_on_one_line_even_among_words():
    forms = ["1.72 times (1.51 to 1.93)", "0.41 (0.38 to 0.44)", "+0.012 (-0.003 to +0.020)", "[0.90, 1.10]", "12 %",
             "1.2–1.4", "6 of 6"]
    for form in forms:
        html = show.table([{"found": form}, {"found": "–"}])._repr_html_()
        assert re.search(r"td\.col0\s*\{[^}]*text-align: right[^}]*nowrap[^}]*tabular-nums", html), form
        mixed = show.table([{"found": "no interval: fewer than five prompts"}, {"found": form}])._repr_html_()
        assert re.search(r"td\.row1\.col0\s*\{[^}]*white-space: nowrap", mixed), form
        assert "text-align: right" not in mixed
        assert "row0" not in re.search(r"<style.*?</style>", mixed, re.DOTALL)[0]


def test_a_rounded_zero_has_no_sign():
    values = [-0.001, numpy.float64(-0.001), numpy.float32(-0.001), "-0.00", "+0.00 (-0.00 to +0.01)", "-0.00 to 0.02"]
    html = show.table([{"value": value} for value in values], digits=2)._repr_html_()
    assert re.findall(r"<td[^>]*>([^<]*)</td>", html) == ["0.00", "0.00", "0.00", "0.00", "0.00 (0.00 to +0.01)",
                                                          "0.00 to 0.02"]
    kept = ["-0.01", "-0.001", "-0.5 (-0.9 to -0.1)", "1e-05", "a -0.00 b"]
    shown = show.table([{"value": value} for value in kept])._repr_html_()
    assert re.findall(r"<td[^>]*>([^<]*)</td>", shown) == kept
    assert wording.number(-0.001) == "0.00"
    assert report_text.interval_text((-0.001, 0.2)) == "0.00 to 0.20"


def test_truth_values_are_yes_or_no_and_a_long_word_may_break_after_its_commas():
    html = show.table([{"right": True, "words": "a, b"}, {"right": False, "words": "one,two,three" * 4}])._repr_html_()
    assert re.findall(r"<td[^>]*>(yes|no)</td>", html) == ["yes", "no"]
    assert "<td" in html
    assert html.count("<wbr>") == 8
    assert "a, b" in html


def test_no_dice_are_thrown_for_a_picture():
    session, vocab = decoded()
    assert show.strip(session, vocab) == show.strip(session, vocab)
    assert NO_DICE.fork("any") is NO_DICE


def test_sources_along_an_output_name_the_drafter_or_the_target():
    session, vocab = decoded()
    figure = show.sources(session, vocab)
    assert {trace.name: list(trace.text) for trace in figure.data} == {"toy": ["b", "a"], "target": ["c", "b"]}


def test_rounds_along_an_output_count_nodes():
    session, _ = decoded()
    assert show.rounds(session).layout.title.text == "2 of 4 drafted tokens were accepted in 2 rounds"


def test_entropy_along_an_output_marks_where_rounds_end():
    session, vocab = decoded()
    line, ends = show.entropy(session, names=vocab).data
    assert len(line.y) == 4
    assert list(ends.x) == [2, 4]


def test_any_words_can_stand_in_a_strip_with_their_roles():
    drawn = show.tokens(["a", "b"], ["prompt", "draft"], caption="two words")
    assert repr(drawn) == "a (b)\ntwo words"
    assert ">draft<" in drawn.html
