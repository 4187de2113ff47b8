"""An answer as spans: copies, drafts of a model, rejected tokens and the target's own are told apart without colour."""

from html import escape

from specdec_lib import show
from specdec_lib.analysis.respec_replay import ReplayedSetting
from specdec_lib.how.match import Match
from specdec_lib.loop import decode
from specdec_lib.models.table import Table
from specdec_lib.show.spans import WIDE, _along
from specdec_lib.trees import deterministic_chain, deterministic_tree
from specdec_lib.types import Budget, Draft

ALWAYS_NEXT = Table({(): (1, 0, 0), (0,): (0, 1, 0), (1,): (0, 0, 1), (2,): (1, 0, 0)})
VOCAB = show.Vocabulary.of("a b c")


def decoded(source, wrong=1):
    """Two rounds over the cycle a b c; each drafts one right token and then `wrong` ones, in one chain."""
    def what(session, budget, dice):
        right = (int(session.tokens[-1]) + 1) % 3
        return deterministic_chain((right,) + (right,) * wrong, source)

    *_, session = decode(VOCAB.tokens("a"), ALWAYS_NEXT, lambda *_: Budget(5), what, Match(), max_new_tokens=4)
    return session


def test_copies_and_drafts_of_a_model_are_marked_apart_and_rejected_tokens_are_struck_through():
    copied, drafted = (show.spans(decoded(source), VOCAB) for source in ("suffix-automaton", "eagle2"))
    assert repr(copied).startswith("c[b]~b~c c[a]")
    assert repr(drafted).startswith("m[b]~b~c m[a]")
    assert "1 of 2 accepted, copied" in copied.html
    assert "solid" in copied.html.split("rejected")[0]
    assert "dashed" in drafted.html.split("rejected")[0]
    assert "<s>b<wbr></s>" in copied.html


def test_only_the_first_rounds_are_shown_on_request():
    assert repr(show.spans(decoded("eagle2"), VOCAB, 1, "one")).splitlines() == ["m[b]~b~c", "one"]
    assert repr(show.spans(decoded("eagle2"), VOCAB, 0)).strip() == ""


def test_a_long_rejected_chain_and_its_siblings_are_counted_not_written_out():
    html = show.spans(decoded("eagle2", wrong=5), VOCAB).html
    assert "</s>+2</span>" in html                     # three of five are written
    assert "+n: and n more rejected" in html
    session = next(decode(VOCAB.tokens("a"), ALWAYS_NEXT, lambda *_: Budget(2, 2), lambda *_: deterministic_tree(
        [(0,), (2,)], 4, "eagle2"), Match(), max_new_tokens=3))
    assert "</s>+1</span>" in show.spans(session, VOCAB).html


def test_a_round_without_a_draft_is_the_targets_own():
    session = next(decode(VOCAB.tokens("a"), ALWAYS_NEXT, lambda *_: Budget(), lambda *_: Draft(), Match(),
                          max_new_tokens=1))
    assert repr(show.spans(session, VOCAB)).strip() == "b"


def test_a_token_with_markup_stays_text():
    assert "<b>" not in show.spans(decoded("eagle2"), lambda token: "<b>").html.replace("<wbr>", "")


def test_a_gauge_places_values_in_order_and_says_them_in_words():
    drawn = show.gauge({"ours": 2.0, "rival": 1.0, "now": 3.0}, "tokens", 0.0, 4.0, "now")
    places = {name: float(drawn.html.split(f">{name} ")[0].rsplit('<text x="', 1)[1].split('"')[0])
              for name in ("rival", "ours", "now")}
    assert places["rival"] < places["ours"] < places["now"]
    assert 'aria-label="tokens: ours 2.00, rival 1.00, now 3.00"' in drawn.html
    assert drawn.html.count("<circle") == 3
    heights = {name: int(drawn.html.split(f">{name} ")[0].rsplit(' y="', 1)[1].split('"')[0]) for name in places}
    assert heights["now"] < 30 < heights["ours"] == heights["rival"]                 # the line is at 30


def test_moving_the_first_setting_does_not_rescale_the_lines_of_the_others():
    def place(tokens):
        found = [ReplayedSetting(name, "", decoded("eagle2"), rate, rate)
                 for name, rate in (("now", tokens), ("ours", 2.0), ("paper", 1.5))]
        return show.settings(found, VOCAB).html.split(">ours ")[0].rsplit('<text x="', 1)[1].split('"')[0]

    assert place(1.0) == place(3.5)


def test_the_legend_lists_what_the_answer_holds():
    plain = next(decode(VOCAB.tokens("a"), ALWAYS_NEXT, lambda *_: Budget(), lambda *_: Draft(), Match(),
                        max_new_tokens=1))
    known = ("copied", "model-drafted", "the target's own", "rejected", "more rejected")
    shown = {name: show.spans(session, VOCAB, 1, "end").html.rsplit("<div", 2)[1]
             for name, session in (("plain", plain), ("copied", decoded("suffix-automaton")),
                                   ("drafted", decoded("eagle2", wrong=5)), ("right", decoded("eagle2", wrong=0)))}
    found = {name: [word for word in known if escape(word) in html] for name, html in shown.items()}
    assert found == {"plain": ["the target's own"], "copied": ["copied", "the target's own", "rejected"],
                     "drafted": ["model-drafted", "the target's own", "rejected", "more rejected"],
                     "right": ["model-drafted", "the target's own"]}


def test_a_value_lies_on_the_line_where_it_lies_in_its_range():
    low, middle, high, beyond = (_along(value, 2.0, 4.0) for value in (2.0, 3.0, 4.0, 9.0))
    assert (low, high) == (10, WIDE - 10)
    assert middle == (low + high) / 2
    assert beyond == high
