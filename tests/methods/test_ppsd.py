"""PPSD: its defaults, what it refuses, and plain decoding's very ids on the real model."""

from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.bench.prompts import default_path, load_prompts
from specdec_lib.bench.runners import SynchronizedTarget
from specdec_lib.cards import Kit
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.hub import load as models
from specdec_lib.loop import decode
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import NO_DICE, Refusal
from tests.worlds import SHAPE, kit, network_kit, random_exits, run


def layered(layers: int, exits: tuple[int, ...]) -> Kit:
    """A kit whose target has so many layers, and exits after some of them."""
    shape = replace(SHAPE, layers=layers)
    return replace(network_kit(None), target=Transformer.random(shape, seed=2, dtype=torch.float64),
                   checkpoints={"early-exit": random_exits(shape, exits, (0, 2))})


@pytest.mark.parametrize(("layers", "exits", "layer", "flight"), [
    (6, (1, 2, 3), 3, 2), (6, (1, 2), 2, 3), (6, (1, 5), 1, 6), (7, (2, 3, 4), 3, 3), (6, (5,), 5, 2)])
def test_the_exit_nearest_to_the_middle_is_the_default_and_the_flight_fills_the_layers_above(layers, exits, layer,
                                                                                             flight):
    method = catalog.build("ppsd", layered(layers, exits))
    assert method.schedule.layer == method.what.model.depth == layer
    assert method.when(None, NO_DICE).depth == flight, "one token under test and ceil(N / E) - 1 ahead"


@pytest.mark.parametrize("exit", [1, 2, 5])
def test_the_exit_and_the_length_of_the_flight_can_be_chosen(exit):
    world = layered(6, (1, 2, 5))
    plain = run(catalog.build("ar", world), NO_DICE, None, 20, world.target.fresh())
    for ahead in (0, 1, 4):
        method = catalog.build(f"ppsd(layer={exit},ahead={ahead})", world)
        assert method.when(None, NO_DICE).depth == ahead + 1
        assert run(method, NO_DICE, None, 20, world.target.fresh()) == plain


def test_a_bench_on_a_gpu_which_waits_for_the_prefill_runs_it_too():
    world, waits = layered(6, (1, 2)), []
    plain = run(catalog.build("ar", world), NO_DICE, None, 12, world.target.fresh())
    timed = SynchronizedTarget(world.target.fresh(), lambda: waits.append("done"))
    assert run(catalog.build("ppsd", world), NO_DICE, None, 12, timed) == plain
    assert waits == ["done"]


@pytest.mark.parametrize(("spec", "said"), [("ppsd(layer=4)", "no trained exit after layer 4; they are after 1, 6"),
                                            ("ppsd(layer=6)", "layers above the exit, and all 6"),
                                            ("ppsd(ahead=-1)", "0 or more, got -1"),
                                            ("ppsd(workers='gpu')", "inline, thread, process")])
def test_what_no_pipeline_can_be_made_of_is_refused(spec, said):
    with pytest.raises(Refusal, match=said):
        catalog.build(spec, layered(6, (1, 6)))


def test_a_table_has_no_layers_to_split():
    world = replace(kit(None), checkpoints=network_kit().checkpoints)
    with pytest.raises(Refusal, match="have none|no early exit|layers"):
        catalog.build("ppsd", world)


def test_its_worker_is_where_the_kit_says_unless_it_is_told():
    world = replace(layered(2, (1,)), workers="thread")
    assert catalog.build("ppsd", world).schedule.workers.kind == "thread"
    assert catalog.build("ppsd(workers='inline')", world).schedule.workers.kind == "inline"
    assert catalog.methods()["ppsd"].parallel


def test_a_policy_that_reads_the_targets_last_hidden_state_finds_it_in_the_second_stage():
    world = network_kit(None)
    plain = run(catalog.build("ar", world), NO_DICE, None, 12, world.target.fresh())
    assert run(catalog.build("ppsd@adaeagle", world), NO_DICE, None, 12, world.target) == plain
    assert world.target.cache.taps, "it has read one"


def test_on_the_real_model_it_emits_plain_decodings_ids_in_turn_and_in_a_process():
    target, text = models.load("smollm2-135m", dtype=torch.float32)
    world = Kit(target, text.facts, checkpoints=CheckpointFolder(SHIPPED, target, text), parts=catalog.make_part)
    prompt = text.encode_chat([load_prompts(default_path())[0].turns[0]])

    def output(spec: str):
        fresh = replace(world, target=target.fresh(), indexes={}, memory={})
        *_, session = decode(prompt, fresh.target, *catalog.build(spec, fresh), max_new_tokens=32, end=text.facts.end)
        return session

    plain, inline, beside = map(output, ("ar", "ppsd", "ppsd(workers='process')"))
    assert inline.output == beside.output == plain.output
    kept = [bool(round.verdict.path) for round in inline.rounds]
    assert any(kept)
    assert not all(kept), "both a hit and a flush were seen"
    one, two = (torch.tensor([value for round in each.rounds for value in round.logprobs])
                for each in (plain, inline))
    assert torch.allclose(one, two, atol=1e-4)
