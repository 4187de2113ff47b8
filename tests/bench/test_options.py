"""From words to a setting: what they describe, what they need, and that bad ones are refused before a model loads."""

import hashlib
import json
from collections import UserDict
from dataclasses import replace
from types import SimpleNamespace

import pytest

from specdec_lib import catalog
from specdec_lib.bench import options
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.cost.curves import CostCurve
from specdec_lib.types import Refusal
from tests.worlds import network_kit

NOWHERE = "/nowhere/a-model"                       # loading it would be refused


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "mine.jsonl"
    lines = [{"question_id": i, "category": category, "turns": [f"text {i}"]}
             for i, category in enumerate(("qa", "qa", "rag"), 1)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def prepared(prompts, tmp_path):
    """prepared(**words): on three prompts, a target that does not exist and a shelf without checkpoints."""
    (tmp_path / "shelf").mkdir()
    usual = {"methods": "ar", "prompts": prompts, "target": NOWHERE, "device": "cpu", "dtype": "fp32",
             "checkpoints": tmp_path / "shelf"}
    return lambda **words: options.prepare(options.RunOptions(**usual | words))


def put_card(shelf, name, sha256):
    """A card alone: enough for a plan, which names checkpoints by their checksums."""
    (shelf / name).mkdir()
    card = {"bytes": 1, "sha256": sha256, "target": {"name": "tiny", "fingerprint": {}}}
    (shelf / name / "card.json").write_text(json.dumps(card))


def test_words_become_a_plan_with_the_file_of_prompts_named_and_summed(prepared, prompts):
    plan = prepared(methods="ar, sam, draft-model@svip(h=0.3)", peers="hf-generate,hf-prompt-lookup", threads=3,
                   max_new_tokens=9, repeats=2, temperature=0.5, top_k=7, top_p=0.8, seed=4).plan
    assert tuple(map(str, plan.methods)) == ("ar", "sam", "draft-model@svip(h=0.3)")
    assert plan.peers == ("hf-generate", "hf-prompt-lookup")
    assert (plan.prompts, plan.sha256) == ("mine.jsonl", hashlib.sha256(prompts.read_bytes()).hexdigest())
    assert (plan.device, plan.dtype, plan.threads) == ("cpu", "float32", 3)
    assert (plan.max_new_tokens, plan.repeats, plan.temperature, plan.seed) == (9, 2, 0.5, 4)
    assert (plan.top_k, plan.top_p) == (7, 0.8)
    assert plan.as_dict()["target"] == "a-model"


def test_a_limit_takes_from_every_family_alike(prepared):
    assert [one.question_id for one in prepared().prompts] == [1, 2, 3]
    assert [one.question_id for one in prepared(limit=2).prompts] == [1, 3]


@pytest.mark.parametrize(("words", "sentence"), [
    ({"methods": "ar,nope"}, "no method named 'nope'"), ({"peers": "hf-nope"}, "no peer named 'hf-nope'"),
    ({"methods": " , "}, "name at least one method"), ({"device": "abacus"}, "no device named 'abacus'"),
    ({"dtype": "int3"}, "no dtype named 'int3'"), ({"methods": "early-exit"}, "`specdec train early-exit` makes it"),
    ({"orders": "backwards"}, "got backwards"),
    ({"methods": "prompt-lookup(longest=0)", "dtype": "auto"}, "n-gram lengths must"),
    ({"methods": "early-exit", "dtype": "auto"}, "`specdec train early-exit` makes it")])
def test_a_bad_word_is_refused_before_the_target_is_looked_for(prepared, words, sentence):
    with pytest.raises(Refusal, match=sentence) as refused:
        prepared(**words)
    assert NOWHERE not in str(refused.value)


def test_a_drafter_that_any_target_can_have_is_trained_for_the_one_that_was_named(prepared):
    with pytest.raises(Refusal, match=f"`specdec train eagle --target {NOWHERE}` makes it"):
        prepared(methods="eagle")


def test_files_and_folders_that_do_not_exist_are_refused_by_their_path(prepared, tmp_path):
    for word in ("prompts", "store", "cost", "checkpoints"):
        with pytest.raises(Refusal, match=f"/{word}"):
            prepared(**{word: tmp_path / "gone" / word})


def test_by_default_what_cannot_run_is_left_out_with_the_reason(prepared, tmp_path):
    put_card(tmp_path / "shelf", "eagle", "e" * 64)
    here, batch = prepared(methods=None), prepared(methods=None, batch=8)
    assert here.plan.left_out == tuple(here.why_out) == ("diffuspec",)
    assert "`specdec train diffusion-lm` makes it" in here.why_out["diffuspec"]
    assert here.plan.checkpoints == {"eagle": "e" * 64}
    assert (batch.plan.methods, batch.why_out) == (here.plan.methods, here.why_out)        # a batch runs them all


def test_a_setting_knows_what_its_methods_and_further_parts_need(prepared, tmp_path):
    assert prepared().needs == ()
    assert prepared(methods="ar,draft-model").needs == ("draft",)
    assert prepared().plan.checkpoints is None
    put_card(tmp_path / "shelf", "eagle", "e" * 64)
    put_card(tmp_path / "shelf", "length-predictor", "1" * 64)
    assert prepared(methods="eagle").plan.checkpoints == {"eagle": "e" * 64}
    assert prepared(parts=("eagle",)).plan.checkpoints == {"eagle": "e" * 64}
    assert prepared(methods="eagle@adaeagle").plan.checkpoints == {"eagle": "e" * 64, "length-predictor": "1" * 64}


class Shelf(UserDict):
    """Checkpoints that remember which of them were read."""

    def __init__(self, given):
        self.read = set()
        super().__init__(given)

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


ALIGNED = "diffusion-lm-aligned"
CHECKPOINTS = network_kit().checkpoints | {ALIGNED: network_kit().checkpoints["diffusion-lm"]}
MAKEABLE = [name for name in catalog.methods() if not catalog.lacking(name, network_kit())]
PARAMETERS = ["specbranch(predict='h-rad')", "specbranch(predict='length')", f"specdiff2(weights='{ALIGNED}')",
              "diffuspec(drafter='block-diffusion')", "diffuspec-tree(drafter='block-diffusion')",
              "pearl(drafter='early-exit')", "hierarchical(stack='ngram+early-exit:1+draft-model')", "eagle@adaeagle"]


@pytest.mark.parametrize("spec", MAKEABLE + PARAMETERS)
def test_a_plan_has_the_checksum_of_every_checkpoint_that_its_methods_read(spec, prepared, tmp_path):
    for name in CHECKPOINTS:
        put_card(tmp_path / "shelf", name, name)
    shelf = Shelf(CHECKPOINTS)
    catalog.build(spec, replace(network_kit(), checkpoints=shelf))
    assert shelf.read <= set(prepared(methods=spec).plan.checkpoints or ())
    assert shelf.read or spec in MAKEABLE


def test_a_plan_has_no_checksum_of_what_no_parameter_names(prepared, tmp_path):
    for name in CHECKPOINTS:
        put_card(tmp_path / "shelf", name, name)
    assert set(prepared(methods="specbranch(predict='h-rad')", draft="first-layers").plan.checkpoints) == {"h-rad"}
    copies = prepared(methods="specbranch,pearl(drafter='suffix-automaton')", draft="first-layers")
    assert copies.plan.checkpoints is None


def test_a_finished_run_is_read_without_loading_a_model_and_an_unfinished_one_needs_it(prepared, tmp_path):
    here, said = prepared(), []
    with pytest.raises(Refusal, match="there is no folder"):
        options.bench_prepared(here, tmp_path / "out", lambda *progress: None, said.append)
    RunFolder(tmp_path / "out", here.plan).finish([], {"methods": {"ar": {}}})
    again = options.bench_prepared(here, tmp_path / "out", lambda *progress: None, said.append)
    assert again == {"methods": {"ar": {}}}
    assert "nothing is measured again" in said[-1]


@pytest.mark.parametrize("saved", [None, CostCurve((1, 5), (256,), ((1.0, 1.5),))])
def test_a_curve_that_the_run_measures_is_refitted_and_a_saved_one_is_not(prepared, tmp_path, monkeypatch, saved):
    asked = {}
    monkeypatch.setattr(options.run, "run_bench", lambda *given, **more: asked.update(more) or {})
    monkeypatch.setattr(options.PreparedRun, "environment",
                        lambda here, say: SimpleNamespace(kit=lambda *given: SimpleNamespace(target=None),
                                                          target=SimpleNamespace(context=None)))
    here = replace(prepared(), saved_curve=saved)
    assert options.bench_prepared(here, tmp_path / "out", lambda *progress: None, print) == {}
    assert asked == {"refits": saved is None}
