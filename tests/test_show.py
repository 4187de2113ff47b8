"""What notebooks show is returned as values, names its tokens, and says the same in plain text."""

import copy
import json
import pickle
import re
from dataclasses import replace

import pytest
import torch

from specdec_lib import figures, show
from specdec_lib.explore import Choices, explore
from specdec_lib.trees import deterministic_chain, deterministic_tree
from specdec_lib.types import NO_DICE, Draft, Lattice, Verdict
from tests.hostile import SCRIPT, running
from tests.show.decode import decoded


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
        "tokens": show.tokens([SCRIPT], ["draft"], [SCRIPT], SCRIPT, [SCRIPT]), "check": show.check(SCRIPT, True),
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


def test_a_tree_rings_the_chain_that_was_kept_whether_or_not_it_was_accepted():
    tree = deterministic_tree([(0, 1), (0, 2)], 5)
    figure = show.tree(tree, Verdict.of(tree, (0,), 1), show.Vocabulary.of("a b c"), kept=(0, 2))
    drawn = {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in figure.data if trace.name}
    assert drawn["kept chain"][0] == drawn["accepted"][0]
    assert drawn["kept chain"][1] in drawn["rejected"]
    assert "kept chain" not in {trace.name for trace in show.tree(tree, names=show.Vocabulary.of("a b c")).data}


def test_a_lattice_shows_the_best_candidates_of_each_position():
    one = Lattice(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[.7, .3], [.6, .4]]).log())
    assert repr(show.lattice(one, show.Vocabulary.of("a b"), best=1)) == "a 0.70\nb 0.60"


def test_a_map_of_a_lattice_finds_paths_of_tokens_among_the_candidates():
    one = Lattice(torch.tensor([[0, 1], [1, 2]]), torch.tensor([[.7, .3], [.6, .4]]).log())
    figure = show.lattice_map(one, show.Vocabulary.of("a b c"), {"best": (0, 1)}, (1, 0, 2))
    assert [list(row) for row in figure.data[0].text] == [["a", "b"], ["b", "c"]]
    assert figure.layout.title.text == "The target's token is a candidate in 1 of 2 slots, the best in 0"
    assert [trace.name for trace in figure.data if trace.name] == ["best", "the target's tokens"]


def test_a_word_of_spaces_alone_is_seen_in_a_table_a_map_and_a_tree():
    one, names = Lattice(torch.tensor([[0, 1]]), torch.tensor([[.7, .3]]).log()), [" ", " of"].__getitem__
    assert [row[0] for row in show.lattice_map(one, names).data[0].text] == ["␣", " of"]
    drawn = show.tree(deterministic_chain((0, 1)), names=names).data
    assert "␣" in [word for trace in drawn for word in trace.text or ()]
    html = show.table([{"came": " ", "drafted": "\n", "text": " of", "none": ""}]).to_html()
    assert re.findall("<td[^>]*>([^<]*)</td>", html) == ["␣", "↵", " of", ""]


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


def test_an_offer_stands_behind_a_bar_and_is_alone_struck_where_it_is_rejected():
    drawn = show.tokens(["a", "b", "c"], ["rejected", "exchanged", "accepted"], offers=["x", "y", ""])
    assert repr(drawn).splitlines()[0] == "a | ~x~ b | {y} [c]"
    assert ">a&nbsp;|&nbsp;<s>x</s></span>" in drawn.html
    assert ">b&nbsp;|&nbsp;y</span>" in drawn.html
    assert "line-through" not in drawn.html.split("margin-top")[0], "the word that stays in the text is not struck"
    assert ">exchanged<" in drawn.html, "the legend names it"


def test_a_word_that_is_wider_than_the_page_is_broken():
    assert "overflow-wrap:anywhere" in show.text("a" * 200).html
