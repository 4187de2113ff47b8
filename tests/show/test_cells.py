"""Cells that show themselves: checks, sources, tables; text that is readable on light and on dark pages."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy
import pytest
import torch

from specdec_lib import show
from specdec_lib.analysis import report_text, wording
from specdec_lib.figures.theme import contrast
from specdec_lib.how.match import Match
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Lattice
from tests.show.decode import decoded


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


class Inks(HTMLParser):
    """For every text of a page its ink and its paper, as the styles of the elements around it say; None: the page's."""

    def __init__(self):
        super().__init__()
        self.around, self.pairs = [(None, None)], set()

    def handle_starttag(self, tag, attrs):
        style = re.sub(r"var\([^,]*,\s*(#\w+)\)", r"\1", dict(attrs).get("style") or "")     # without a theme around it
        ink, paper = self.around[-1]
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
             show.tokens(list("abcdefg"), ["accepted", "exchanged", "rejected", "extra", "draft", "target", "prompt"],
                         offers=["", "x", "y", "", "", "", ""]),
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


def test_truth_values_are_yes_or_no_and_a_long_word_may_break_after_its_commas():
    html = show.table([{"right": True, "words": "a, b"}, {"right": False, "words": "one,two,three" * 4}])._repr_html_()
    assert re.findall(r"<td[^>]*>(yes|no)</td>", html) == ["yes", "no"]
    assert html.count("<wbr>") == 8
    assert "a, b" in html


def test_short_words_stay_on_one_line_and_sentences_wrap():
    html = show.table([{"so it is": "not told apart", "idea": "a sentence of several words"},
                       {"so it is": None, "idea": "one"}])._repr_html_()
    assert re.search(r"td\.col0\s*\{[^}]*white-space: nowrap", html)
    assert not re.search(r"td\.col1\s*\{[^}]*white-space: nowrap", html)


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


def test_the_rows_of_a_run_say_what_their_speeds_and_the_percentage_of_the_machine_are():
    html = show.measured([{"measured speed": 1.2, "machine": "calm (13%)"}])._repr_html_()
    said = re.search(r"<caption>(.*?)</caption>", html)[1]
    assert "times plain decoding of the same run" in said
    assert "by how much of their median plain decoding" in said


def test_a_listing_has_the_inks_and_the_paper_of_code_cells_in_either_theme():
    html = show.source(Match).html
    colours = re.findall(r"(?:color|background):\s*([^;\"]+)", html)
    assert len(set(colours)) > 5
    assert all(re.fullmatch(r"var\(--jp-[\w-]+,#\w{6}\)", colour) for colour in colours)
    assert "var(--jp-cell-editor-background," in html
    assert 'font-weight:bold">class</span>' in html


def test_a_caption_stays_in_view_beside_a_table_that_scrolls():
    html = show.measured([{"measured speed": 1.2}])._repr_html_()
    assert re.search(r"caption\s*\{[^}]*position: sticky[^}]*left: 0[^}]*max-width: 80vw", html)
    assert "sticky" not in show.table([{"measured speed": 1.2}])._repr_html_()
