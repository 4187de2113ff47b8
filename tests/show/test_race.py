"""A race as HTML: tokens by their source, told apart without colour; clocks, rates and the final table."""

import pytest

from specdec_lib import show
from specdec_lib.bench.race import Race, RaceState
from specdec_lib.figures.theme import contrast
from specdec_lib.show.race import CORRECTED, LOOKS, OWN, TINT, heading, race_rows, token_kinds
from tests.bench.test_race import VOCAB, Watch, run
from tests.hostile import SCRIPT, running


def state(**more):
    watch = Watch()
    return run(Race({"ar": watch.decoding("ar", 1.0, source=""), "copy": watch.decoding("copy", 1.0, **more)},
                    timer=watch))


@pytest.mark.parametrize(("source", "kind"), [("suffix-automaton", "copied"), ("feedback-retrieval", "copied"),
                                              ("eagle2", "model-drafted"), ("token-recycling", "recycled")])
def test_a_token_has_the_kind_of_its_drafter(source, kind):
    ar, other = state(source=source).racers
    assert token_kinds(other.session) == (kind, CORRECTED, kind, CORRECTED)
    assert token_kinds(ar.session) == (OWN,) * 4


def test_a_token_behind_a_draft_that_was_accepted_whole_corrects_nothing():
    assert token_kinds(state(wrong=0).racers[1].session) == ("copied", OWN, "copied", OWN)


def test_the_strips_stand_side_by_side_with_their_clocks():
    shown = show.race(state(), VOCAB, prompt="go on")
    assert repr(shown).splitlines()[:4] == [
        "ar: 4.00 s, 4 tokens, 1.0 tokens/s, 1.00 per forward", "bcab",
        "copy: 2.00 s, 4 tokens, 2.0 tokens/s, 2.00 per forward", "c[b]x[c]c[a]x[b]"]
    assert "never at the same time" in shown.html
    assert "go on" in shown.html
    assert shown.html.count("✓") == 2


def test_a_moment_of_a_race_shows_what_had_been_decoded_by_then():
    shown = show.race(state(), VOCAB, seconds=1.5)
    assert repr(shown).splitlines()[1::2][:2] == ["b", "c[b]x[c]"]
    assert "✓" not in shown.html
    before = show.race(state(), VOCAB, seconds=0.0)
    assert repr(before).splitlines()[0] == "ar: 0.00 s, 0 tokens"


def test_kinds_differ_in_more_than_colour_and_text_keeps_the_ink_of_its_page():
    assert len({line for _, line in LOOKS.values()}) == len(LOOKS)
    assert "color:#" not in show.race(state(), VOCAB).html
    share = int(TINT, 16) / 255
    for colour in filter(None, (colour for colour, _ in LOOKS.values())):
        for ink, paper in (("#000000", "#ffffff"), ("#ffffff", "#111111")):
            parts = [(int(colour[i:i + 2], 16), int(paper[i:i + 2], 16)) for i in (1, 3, 5)]
            mixed = "#" + "".join(f"{round(share * one + (1 - share) * two):02x}" for one, two in parts)
            assert contrast(ink, mixed) >= 4.5


def test_the_table_has_a_row_for_every_method_and_says_what_agrees():
    ar, copy = race_rows(state())
    assert ar == {"method": "ar", "seconds": "4.00", "prefill (s)": "0.50", "tokens": "4", "tokens/s": "1.0",
                  "tokens per forward": "1.00", "times ar": "1.00", "same ids as ar": "yes"}
    assert (copy["times ar"], copy["same ids as ar"]) == ("2.00", "yes")
    assert race_rows(state(tokens=3))[1]["same ids as ar"] == "no"
    part = race_rows(state().at(1.5))
    assert [row["same ids as ar"] for row in part] == ["so far", "so far"]
    assert race_rows(state().at(0.0))[1]["times ar"] == "–"


def test_text_from_outside_stays_text():
    watch = Watch()
    done = run(Race({SCRIPT: watch.decoding("x", 1.0)}, timer=watch))
    assert running(show.race(done, lambda token: SCRIPT, prompt=SCRIPT).html) == []
    assert heading(RaceState(done.racers).racers[0]).startswith(SCRIPT)
