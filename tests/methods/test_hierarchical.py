"""The hierarchical method: its ids on the real target, its budget, its spec, and a stack of one drafter."""

from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.bench.environment import read_ngram
from specdec_lib.bench.prompts import balanced, default_path, load_prompts
from specdec_lib.cards import Kit
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.dice import Dice
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.hub import load as models
from specdec_lib.loop import decode
from specdec_lib.training.recipes import NGRAM
from specdec_lib.types import Refusal
from specdec_lib.what.hierarchy import NAME
from tests.worlds import kit, network_kit, run

STACKS = ["hierarchical", "hierarchical(stack='draft-model',blocks=(3,))", "hierarchical(stack='ngram',blocks=(2,))",
          "hierarchical(stack='ngram+draft-model',blocks=(4,6))", "hierarchical(stack='ngram+early-exit',blocks=(2,4))",
          "hierarchical(stack='suffix-automaton+draft-model',blocks=(4,3))",
          "hierarchical(stack='ngram+draft-model+early-exit:10',blocks=(1,2,3))", "hierarchical@svip"]


@pytest.fixture(scope="module")
def world():
    """The default target in fp32, its tokenizer and a kit with the trained drafters."""
    target, text = models.load("smollm2-135m", dtype=torch.float32)
    shelf = CheckpointFolder(SHIPPED, target, text, readers={NGRAM: read_ngram})
    lm = draft_lm(shelf["draft-lm"].state, target.weights)
    return Kit(target, text.facts, draft=lm, checkpoints=shelf, parts=catalog.make_part), text


def last(spec: str, kit: Kit, prompt, tokens: int = 24):
    """The session at the end of one decode."""
    fresh = replace(kit, target=kit.target.fresh(), indexes={}, memory={})
    *_, session = decode(prompt, fresh.target, *catalog.build(spec, fresh), max_new_tokens=tokens, end=kit.facts.end)
    return session


@pytest.mark.parametrize("spec", STACKS)
def test_every_stack_writes_plain_decodings_ids_on_the_real_target(world, spec):
    kit, text = world
    saved = 0
    for place in (1, 4):
        prompt = text.encode_chat([balanced(load_prompts(default_path()), 6)[place].turns[0]])
        if place not in PLAIN:
            PLAIN[place] = last("ar", kit, prompt)
        drafted = last(spec, kit, prompt)
        assert drafted.output == PLAIN[place].output
        saved += len(PLAIN[place].rounds) - len(drafted.rounds)
    assert saved > 0, "the target accepts something on one of the prompts"


PLAIN: dict = {}


def test_the_budget_leaves_room_for_every_block_so_that_no_overshoot_is_cut():
    method = catalog.build("hierarchical(stack='prompt-lookup+draft-model',blocks=(4,6))", kit())
    assert method.when(None, Dice(0)).depth == 10


@pytest.mark.parametrize("spec", ["hierarchical", "hierarchical(stack='draft-model',blocks=(4,))"])
def test_the_same_numbers_give_the_same_text_and_one_drafter_is_plain_speculation(spec):
    one, other = (run(catalog.build(spec, network_kit()), Dice(5), tokens=12, target=network_kit().target)
                  for _ in range(2))
    assert one == other
    if "blocks" in spec:
        plain = catalog.build("draft-model(depth=4)", network_kit())
        assert one == run(plain, Dice(5), tokens=12, target=network_kit().target)


def test_every_round_of_a_stack_keeps_its_inner_rounds():
    made = network_kit()
    method = catalog.build("hierarchical(stack='ngram+draft-model',blocks=(2,3))", made)
    *_, session = decode((0, 2, 1), made.target, *method, max_new_tokens=30, dice=Dice(2), sampling=made.sampling)
    for one in session.rounds:
        inner = one.draft.notes.get(NAME, ())
        assert sum((each.emitted for each in inner), ()) == one.draft.tokens
        assert bool(inner) == (len(one.draft) > 0)


@pytest.mark.parametrize("spec", ["hierarchical(blocks=3)", "hierarchical(stack=3)", "hierarchical(blocks=(1.5,2))",
                                  "hierarchical(depth=4)"])
def test_a_spec_with_other_values_is_refused(spec):
    with pytest.raises(Refusal):
        catalog.build(spec, network_kit())


def test_a_stack_needs_the_checkpoints_of_the_drafters_that_it_names():
    spec = "hierarchical(stack='draft-model+early-exit',blocks=(1,2))"
    assert "early-exit is missing" in catalog.lacking(spec, kit(None))
