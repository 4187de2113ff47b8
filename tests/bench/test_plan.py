"""The plan of a run: bad words are refused in one sentence, and its dict is what a resume compares."""

import json

import pytest

from specdec_lib import catalog
from specdec_lib.bench.plan import Plan, changed_settings, check_threads
from specdec_lib.sampling import Sampling
from specdec_lib.types import Refusal


@pytest.mark.parametrize(("change", "words"), [
    ({"methods": ("sam(",)}, "is not a name with parameters"),
    ({"methods": ("sam@sometimes",)}, "no policy"),
    ({"peers": ("hf-generate", "hf-generate")}, "the peer hf-generate is named twice"),
    ({"limit": -2}, "a limit of -2 prompts leaves nothing to run"),
    ({"top_p": 0.9}, "at temperature 0 nothing is sampled"), ({"top_k": 5}, "at temperature 0 nothing is sampled"),
    ({"temperature": 1.0, "top_p": 0.0}, "top_p must be above 0"),
    ({"temperature": 1.0, "top_k": -1}, "top_k must be 0")])
def test_bad_words_are_refused_in_one_sentence(change, words):
    with pytest.raises(Refusal, match=words) as refused:
        Plan(**{"methods": ("ar",)} | change)
    assert "\n" not in str(refused.value)


def test_paths_are_kept_as_names_and_hub_names_stay_whole():
    made = Plan(("ar", "draft-model"), target="/models/a/tiny", draft="/models/b/small", store="/c/own.store",
                cost="/d/curve.json", diffusion="/models/dream")
    kept = made.as_dict()
    assert {name: kept[name] for name in ("target", "draft", "store", "cost", "diffusion")} == {
        "target": "tiny", "draft": "small", "store": "own.store", "cost": "curve.json", "diffusion": "dream"}
    assert Plan(("ar",), target="org/name").as_dict()["target"] == "org/name"


def test_a_plan_equals_what_was_kept_of_it_as_json():
    made = Plan(("ar", "sam"), ("hf-generate",), limit=3, checkpoints={"eagle": "0" * 64}, orders=("file",))
    kept = json.loads(json.dumps(made.as_dict()))
    assert changed_settings(kept, made.as_dict()) == []


def test_settings_that_older_runs_did_not_know_are_written_only_where_they_are_used():
    later = {"orders", "diffusion", "left_out", "workers", "batch", "top_k", "top_p",
             "system", "template_switches"}
    assert not later & set(Plan(("ar",), temperature=0.7).as_dict())
    sampled = Plan(("ar",), temperature=0.7, top_k=5, top_p=0.9).as_dict()
    assert (sampled["top_k"], sampled["top_p"]) == (5, 0.9)
    assert Plan(("ar",), diffusion="dream").as_dict()["diffusion"] == "dream"
    assert Plan(("ar",), left_out=("sam",)).as_dict()["left_out"] == ["sam"]


def test_every_changed_setting_is_named_with_both_values_whichever_side_lacks_it():
    one, other = Plan(("ar",), seed=1).as_dict(), Plan(("ar",), seed=2, diffusion="dream").as_dict()
    assert changed_settings(one, other) == ["seed is 1 there and 2 here", "diffusion is None there and 'dream' here"]
    assert changed_settings(other, one) == ["seed is 2 there and 1 here", "diffusion is 'dream' there and None here"]


def test_a_setting_that_is_not_written_has_its_usual_value_in_a_sentence():
    one, other = Plan(("ar",), batch=4, top_k=5, temperature=1.0).as_dict(), Plan(("ar",), temperature=1.0).as_dict()
    assert changed_settings(one, other) == ["batch is 4 there and 1 here", "top_k is 5 there and 0 here"]
    learning = Plan(("respec+memory",), orders=("file", "shuffled")).as_dict()
    assert changed_settings(Plan(("respec+memory",)).as_dict(), learning) == [
        "orders is ['file'] there and ['file', 'shuffled'] here"]


def test_temperature_zero_is_greedy_and_any_other_samples():
    assert Plan(("ar",)).sampling is None
    assert Plan(("ar",), temperature=0.7).sampling == Sampling(0.7)
    assert Plan(("ar",), temperature=0.7, top_k=5, top_p=0.9).sampling == Sampling(0.7, 5, 0.9)


def test_what_a_method_needs_includes_what_its_parts_and_its_parameters_name():
    assert catalog.needs(catalog.cards_of("draft-model")) == ["draft"]
    assert catalog.needed_checkpoints("draft-model@adaeagle") == ["length-predictor"]
    spec = catalog.method_spec("diffusion-draft(weights='diffusion-lm-aligned')@svip")
    assert spec.checkpoint == "diffusion-lm-aligned"
    assert catalog.method_spec("diffusion-draft").checkpoint is None


@pytest.mark.parametrize("threads", [0, 10 ** 6])
def test_one_thread_is_enough_and_none_or_a_million_are_refused(threads):
    check_threads(1)
    with pytest.raises(Refusal, match="at least 1"):
        check_threads(threads)
