"""Fits by different recipes from made-up cards: what is read and kept, and what differs at the same amount of text."""

import gzip
import json

import pytest

from specdec_lib.analysis.learning_curves import PowerLaw
from specdec_lib.analysis.recipe_fits import (
    HEAD,
    RecipeFit,
    RecipeFits,
    ends_of,
    far_points,
    fastest_quarter,
    fit_rows,
    keep_fits,
    law_of,
    load_fits,
    made_row,
    missed_text,
    reached_text,
    read_fit,
    recipe_texts,
    recipe_verdict,
)
from specdec_lib.types import Refusal

USUAL = {"slot": "ce", "depth": "decay", "rows": 8192, "trained_depth": 3, "seed": 0, "rate": 0.004, "clip": 1.0}
LAW = PowerLaw(2.0, 0.2, 0.4)


def fit_folder(root, name, tokens, watched=None, looks=(1.1,), **settings):
    """A folder as `specdec train eagle --watch FILE --out FOLDER` leaves it, as far as it is read."""
    folder = root / name / "eagle"
    folder.mkdir(parents=True)
    rates = {"tokens_per_target_forward": LAW.at(tokens / 1e6) if watched is None else watched,
             "conditional_acceptance": [0.4, 0.5]}
    card = {"settings": USUAL | settings, "measured": {"watched": {"eagle": rates}},
            "made": {"tokens_seen": tokens, "command": f"specdec train {name}", "commit": "abc"}}
    (folder / "card.json").write_text(json.dumps(card))
    log = [{"step": 0, "watched": {"eagle": {"tokens_per_target_forward": look}}} for look in looks]
    log += [{"step": k, "seconds": 2.0 * k, "tokens": 1000 * k, "loss": 3.0} for k in range(1, 9)]
    (folder / "log.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, log)).encode()))
    return folder.parent


@pytest.fixture(name="fits")
def fits_fixture(tmp_path):
    made = [fit_folder(tmp_path, "base", 200_000), fit_folder(tmp_path, "tv", 150_000, LAW.at(.15) - .1, slot="tv"),
            fit_folder(tmp_path, "seed-1", 100_000, seed=1), fit_folder(tmp_path, "long", 800_000),
            fit_folder(tmp_path, "short", 50_000, LAW.at(.05) + .01),
            fit_folder(tmp_path, "wide", 100_000, LAW.at(.1) + .001, rows=16384),
            fit_folder(tmp_path, "more", 100_000, 1.7, begun_from={"sha256": "0", "tokens_seen": 1234})]
    keep_fits(made, "eagle", tmp_path / "recipes.json", {"prompts": 3})
    return load_fits(tmp_path / "recipes.json")


def test_a_fit_is_read_with_its_recipe_its_first_look_its_speed_and_what_it_measured(tmp_path):
    one = read_fit(fit_folder(tmp_path, "tv", 200_000, 1.4, slot="tv", looks=(1.1, 1.3)), "eagle")
    assert (one.name, one.tokens, one.command, one.speed) == ("tv", 200_000, "specdec train tv", 500.0)
    assert (one.started, one.watched, one.by_depth) == (1.1, 1.4, (0.4, 0.5))
    assert one.recipe["loss"] == "tv"
    assert read_fit(fit_folder(tmp_path, "unwatched", 9, 1.4, looks=()), "eagle").started is None


def test_a_speed_is_that_of_the_steps_that_nothing_slowed():
    seconds, log = 0.0, []
    for step in range(40):
        seconds += 1.0 if step % 2 else 5.0
        log.append({"step": step, "seconds": seconds, "tokens": 100 * step, "loss": 1.0})
    assert fastest_quarter(log) == 100
    with pytest.raises(ValueError, match="fewer than two steps"):
        fastest_quarter(log[:1])


def test_fits_by_one_recipe_make_the_curve_and_others_are_held_against_it(fits):
    assert [one.name for one in fits.like("base")] == ["short", "seed-1", "base", "long"]
    assert [one.name for one in fits.others("base")] == ["wide", "tv"]
    assert fits.others("more") == ()                # nothing else began where it began
    assert ends_of(fits.like("base"))[-1] == (0.8, pytest.approx(LAW.at(.8)))
    law, noise = law_of(fits, "base")
    assert law.at(1.0) == pytest.approx(LAW.at(1.0), abs=0.02)
    assert 0.01 < noise < 0.02                      # from the law of the others; from their own less than 0.01
    assert max(abs(value - law.at(tokens)) for tokens, value in ends_of(fits.like("base"))) < 0.01
    rows = {row["what differs"]: row for row in fit_rows(fits, "base", LAW)}
    assert set(rows) == {"nothing", "seed 1", "draft vocabulary 16384", "loss tv"}
    assert rows["loss tv"]["more than the law"] == pytest.approx(-.1)
    assert (fits.made["commit"], fits.watched) == ("abc", {"prompts": 3})


def test_a_recipe_differs_where_it_lies_farther_from_the_law_than_the_bases_own_fits(fits):
    scatter = "; the base's own fits lie up to 0.010 from the law of the others"
    assert recipe_texts(fits, "base", LAW, 0.01) == [
        f"no difference shown: draft vocabulary 16384, +0.001 tokens per forward{scatter}",
        f"below the law: loss tv, -0.100 tokens per forward{scatter}"]
    assert recipe_verdict(0.021, 0.01) == "above the law"


def test_where_fits_were_made_is_said_in_words_that_fit_a_table():
    assert made_row({"commit": "0123456789", "tokens_of_data": 370368, "threads": 2, HEAD: 5434454, "dtype": "x"}) == {
        "commit": "01234567", "tokens of the answers": "370,368", "threads": "2", HEAD: "5,434,454", "dtype": "x"}


def test_points_beyond_the_law_are_the_largest_fit_and_the_head_whose_text_is_known():
    base, on = (RecipeFit(name, {}, 10**6 * tokens, 1.0, started, 2.0, (), "") for name, tokens, started in
                (("far", 7, None), ("on", 2, 1.5)))
    fits = {"far": base, "on": on}
    assert far_points(RecipeFits(fits, {HEAD: 3_000_000}, {}), "on", ["far"]) == {
        "measured, the head gone on from": [(3.0, 1.5)], "measured, far": [(7.0, 2.0)]}
    for made, later in (({}, "on"), ({HEAD: 3_000_000}, "far")):
        assert far_points(RecipeFits(fits, made, {}), later, ["far"]) == {"measured, far": [(7.0, 2.0)]}
    with pytest.raises(Refusal, match="`largest` names no fit"):
        far_points(RecipeFits(fits, {}, {}), "on", [])


def test_a_goal_names_the_fit_that_reached_it_with_the_least_text():
    def fit(name, tokens, watched, begun="the target's layers"):
        return RecipeFit(name, {"begun from": begun}, tokens, 1.0, None, watched, (), "")

    some = [fit("short", 10**6, 1.3), fit("long", 9 * 10**6, 2.2), fit("on", 10**6, 1.8, "a fit of 3 tokens")]
    fits = {one.name: one for one in some}
    known, unknown = RecipeFits(fits, {HEAD: 3_000_000}, {}), RecipeFits(fits, {}, {})
    said = "measured: 1.50 tokens per forward are reached by "
    assert reached_text(known, 1.5) == f"{said}on, 1.80 after 4 million tokens"
    assert reached_text(known, 1.8) == f"{said}on, 1.80 after 4 million tokens".replace("1.50", "1.80")
    assert reached_text(unknown, 1.5) == f"{said}long, 2.20 after 9 million tokens"
    assert reached_text(known, 2.5) == "measured: no fit here reached 2.50 tokens per forward"
    assert missed_text(known, ["long", "short"], PowerLaw(2.0, 1.0, 1.0)) == (
        "long, after 9.0 million tokens: 2.20 measured, 1.89 predicted; "
        "short, after 1.0 million tokens: 1.30 measured, 1.00 predicted")


@pytest.mark.parametrize("text", ["", "[]", '{"fits": [{"name": "a"}], "made": {}, "watched": {}}', '{"fits": 3}'])
def test_another_file_and_another_folder_are_refused(text, tmp_path):
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(Refusal, match="holds no fits of recipes"):
        load_fits(tmp_path / "odd.json")
    with pytest.raises(Refusal, match="holds no fit of eagle that watched answers"):
        read_fit(tmp_path, "eagle")
