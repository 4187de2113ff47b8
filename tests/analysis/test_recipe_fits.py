"""Fits by different recipes from made-up cards: what is read and kept, what counts as equal minutes and as noise."""

import gzip
import json

import pytest

from specdec_lib.analysis.recipe_fits import (
    ends_of_lengths,
    fit_rows,
    keep_fits,
    load_fits,
    loop_rows,
    read_fit,
    recipe_findings,
    seed_difference,
    tokens_learned,
    training_rows,
)
from specdec_lib.types import Refusal

USUAL = {"slot": "ce", "depth": "decay", "rows": 8192, "trained_depth": 3, "seed": 0, "rate": 0.004, "clip": 1.0}


def fit_folder(root, name, watched, minutes=5.0, tokens=200_000, looks=(1.1,), **settings):
    """A folder as `specdec train eagle --watch FILE --out FOLDER` leaves it, as far as it is read."""
    folder = root / name / "eagle"
    folder.mkdir(parents=True)
    rates = {"tokens_per_target_forward": watched, "conditional_acceptance": [0.4, 0.5]}
    card = {"settings": USUAL | settings, "measured": {"watched": {"eagle": rates}},
            "made": {"minutes": minutes, "tokens_seen": tokens, "command": f"specdec train {name}", "commit": "abc"}}
    (folder / "card.json").write_text(json.dumps(card))
    log = [{"step": 0, "watched": {"eagle": {"tokens_per_target_forward": look}}} for look in looks]
    (folder / "log.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, [{"step": 1}, *log])).encode()))
    return folder.parent


@pytest.fixture(name="fits")
def fits_fixture(tmp_path):
    made = [fit_folder(tmp_path, "base", 1.50), fit_folder(tmp_path, "tv", 1.40, slot="tv"),
            fit_folder(tmp_path, "seed-1", 1.48, minutes=5.5, seed=1),
            fit_folder(tmp_path, "wide", 1.51, rows=16384), fit_folder(tmp_path, "short", 1.3, 1.2, 50_000),
            fit_folder(tmp_path, "long", 1.6, 11.0, 400_000),
            fit_folder(tmp_path, "more", 1.7, begun_from={"sha256": "0", "tokens_seen": 1234})]
    keep_fits(made, "eagle", tmp_path / "recipes.json", {"prompts": 3}, {"wide": {"times_ar": 1.1}})
    return load_fits(tmp_path / "recipes.json")


def test_a_fit_is_read_with_its_recipe_its_first_look_and_what_it_measured(tmp_path):
    one = read_fit(fit_folder(tmp_path, "tv", 1.4, slot="tv", looks=(1.1, 1.3)), "eagle")
    assert (one.name, one.minutes, one.tokens, one.command) == ("tv", 5.0, 200_000, "specdec train tv")
    assert (one.started, one.watched, one.by_depth) == (1.1, 1.4, (0.4, 0.5))
    assert one.recipe["loss"] == "tv"
    assert read_fit(fit_folder(tmp_path, "unwatched", 1.4, looks=()), "eagle").started is None


def test_equal_minutes_are_compared_and_the_best_stands_first_below_the_base(fits):
    rows = fit_rows(fits, "base")
    assert [row["what differs"] for row in rows] == ["the base", "draft vocabulary 16384", "seed 1", "loss tv"]
    assert rows[1]["more than the base"] == pytest.approx(0.01)
    assert [row["what differs"] for row in fit_rows(fits, "more")] == ["the base"]       # from another start
    assert (fits.made["commit"], fits.watched) == ("abc", {"prompts": 3})


def test_a_recipe_counts_as_different_where_it_differs_by_more_than_seeds_do(fits):
    assert seed_difference(fits, "base") == pytest.approx(0.02)
    assert seed_difference(fits, "long") is None
    said = dict(recipe_findings(fits, "base"))
    assert {sentence.split(" makes")[0]: holds for sentence, holds in said.items()} == {
        "draft vocabulary 16384": False, "loss tv": True}
    assert "loss tv makes a difference: -0.100 tokens per forward, where seeds make one of 0.020" in said


def test_without_a_second_seed_no_finding_says_yes_or_no(tmp_path):
    made = [fit_folder(tmp_path, "base", 1.50), fit_folder(tmp_path, "tv", 1.40, slot="tv")]
    keep_fits(made, "eagle", tmp_path / "recipes.json", {})
    assert recipe_findings(load_fits(tmp_path / "recipes.json"), "base") == [
        ("loss tv makes a difference: -0.100", None)]


def test_a_curve_is_made_of_the_ends_of_one_recipe(fits):
    assert ends_of_lengths(fits, "base") == [(0.05, 1.3), (0.2, 1.48), (0.2, 1.5), (0.4, 1.6)]
    fastest, *_ = training_rows(fits, "base")
    assert fastest["tokens a second in training"] == pytest.approx(200_000 / 300)
    assert loop_rows(fits) == [{"fit": "wide", "draft vocabulary": 16384, "times_ar": 1.1}]


@pytest.mark.parametrize("text", ["", "[]", '{"fits": [{"name": "a"}], "made": {}, "watched": {}}', '{"fits": 3}'])
def test_another_file_and_another_folder_are_refused(text, tmp_path):
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(Refusal, match="holds no fits of recipes"):
        load_fits(tmp_path / "odd.json")
    with pytest.raises(Refusal, match="holds no fit of eagle that watched answers"):
        read_fit(tmp_path, "eagle")


def test_the_text_of_a_head_that_went_on_counts_that_of_its_start():
    first = {"made": {"tokens_seen": 5}, "settings": {"begun_from": None}}
    assert tokens_learned(first) == 5
    assert tokens_learned({"made": {"tokens_seen": 5}, "settings": {"begun_from": {"tokens_seen": 7}}}) == 12
