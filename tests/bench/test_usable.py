"""Default methods that a target cannot run are found before anything is measured."""

import pytest
import torch
import transformers

from specdec_lib import catalog
from specdec_lib.bench.plan import REPORT_METHODS
from specdec_lib.bench.usable import CHAINS_ONLY, left_out, refuse_trees, why_unrecordable, why_unusable
from specdec_lib.cards import Kit
from specdec_lib.commands.arguments import DEFAULT_METHODS
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.types import Refusal
from tests.training.other_target import other_target
from tests.training.tiny import tiny_target
from tests.worlds import network_kit

NO_DRAFT = "draft is missing (--draft NAME)"
TRAINED = {"eagle2": "eagle", "respec": "eagle", "diffuspec": "diffusion-lm"}      # and the checkpoint of each


def bloom() -> HuggingFace:
    torch.manual_seed(0)
    config = transformers.BloomConfig(hidden_size=16, n_layer=1, n_head=2, vocab_size=40)
    lm = HuggingFace(transformers.AutoModelForCausalLM.from_config(config).eval())
    lm.takes_trees = lm.obeys_tree_masks()
    return lm


def kit(target, draft=None) -> Kit:
    return Kit(target, draft=draft, parts=catalog.make_part)


def test_a_target_of_our_own_decoder_with_trained_drafters_runs_every_default_method():
    small = network_kit()                          # a tiny target with a draft model and a checkpoint of each kind
    assert {why_unusable(spec, small) for spec in REPORT_METHODS} == {None}


def test_without_a_draft_model_and_trained_drafters_the_methods_that_need_them_are_unusable():
    why = {spec: why_unusable(spec, kit(other_target())) for spec in REPORT_METHODS}
    assert {spec: reason for spec, reason in why.items() if reason} == {"draft-model": NO_DRAFT} | {
        spec: f"the checkpoint {name} is missing (`specdec train {name}` makes it)" for spec, name in TRAINED.items()}


def test_a_target_that_takes_chains_only_runs_the_methods_that_draft_chains():
    why = {spec: why_unusable(spec, kit(bloom(), tiny_target())) for spec in REPORT_METHODS}
    assert {spec for spec, reason in why.items() if reason is None} == {"ar", "prompt-lookup", "sam", "draft-model"}
    assert {reason for spec, reason in why.items() if reason and spec not in TRAINED} == {CHAINS_ONLY}


def test_a_method_that_was_named_and_drafts_trees_is_refused_on_such_a_target():
    chains = ("sam", "draft-model", "token-recycling@fixed(width=1)", "draft-model@tapout", "sam@coin")
    refuse_trees(map(catalog.method_spec, chains), kit(bloom(), tiny_target()))
    for spec in ("token-recycling", "sam+token-recycling", "token-recycling@typical"):
        with pytest.raises(Refusal, match="so name methods that draft chains"):
            refuse_trees(map(catalog.method_spec, (*chains, spec)), kit(bloom(), tiny_target()))
        refuse_trees([catalog.method_spec(spec)], kit(other_target()))


@pytest.mark.parametrize(("part", "why"), [("prompt-lookup", None), ("token-recycling", CHAINS_ONLY),
                                           ("draft-model", NO_DRAFT), ("nothing", None),
                                           ("recorded", "recording is missing")])
def test_a_drafter_is_recordable_if_it_can_be_made_and_its_own_run_is_possible(part, why):
    assert why_unrecordable(part, kit(bloom())) == why


def test_what_was_left_out_is_one_line():
    assert left_out({"a": "x", "b": "y (z)"}) == "left out by default: a (x), b (y (z))"


def test_the_help_of_the_command_names_the_default_methods():
    assert tuple(DEFAULT_METHODS.split(",")) == REPORT_METHODS
