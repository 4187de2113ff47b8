"""Drafters that fill lattices are recorded with those, and what is read back is what the live part shows."""

import itertools

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.loop import begin
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.replay import load_recording, save_recording
from specdec_lib.recordings.record import record
from specdec_lib.trees import accepted_depth
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.what.recorded import Recorded
from tests.worlds import PROMPT as TEXT
from tests.worlds import network_kit, random_block_diffusion, random_diffusion

SHAPE = LlamaConfig(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, mlp=16, vocab=96, context=128)
PROMPT, IDS, LENGTHS = (1, 2, 3, 4, 5, 6), tuple(range(0, 96, 4)), (2, 4, 8)
NAMES = ["diffusion-lm", "block-diffusion", "prompt-lookup"]


@pytest.fixture(scope="module")
def kit():
    heads = {"diffusion-lm": random_diffusion(SHAPE, IDS),
             "block-diffusion": random_block_diffusion(SHAPE, (0, 1, 2), IDS, block=6, candidates=5)}
    return Kit(Transformer.random(SHAPE, seed=0, dtype=torch.float64), TokenizerFacts(vocab=96), checkpoints=heads,
               parts=catalog.make_part)


@pytest.fixture(scope="module")
def recording(kit):
    return record(PROMPT, kit, NAMES, 9, LENGTHS, about={"vocab": 96, "end": [], "pieces": {}})


def live(name, kit, **values):
    return catalog.make_part(name, Kit(kit.target.fresh(), kit.facts, checkpoints=kit.checkpoints), **values)


def test_whoever_fills_lattices_is_recorded_with_them_up_to_its_block(recording):
    sizes = {name: {length: tuple(kept[0].ids.shape) for length, kept in lengths.items()}
             for name, lengths in recording.lattices.items()}
    assert sizes == {"diffusion-lm": {2: (2, 16), 4: (4, 16), 8: (8, 16)},
                     "block-diffusion": {2: (2, 5), 4: (4, 5), 6: (6, 5)}}
    assert all(len(kept) == 9 for lengths in recording.lattices.values() for kept in lengths.values())


def test_a_recording_says_what_lengths_a_drafter_was_trained_for(recording):
    assert recording.blocks == {"diffusion-lm": (4,), "block-diffusion": (6,)}


@pytest.mark.parametrize("name", NAMES[:2])
def test_every_lattice_of_every_place_is_the_live_drafters(kit, recording, name):
    again = Recorded(recording, name)
    for place, depth, top in itertools.product(range(6, 15), (2, 4, 8), (3, 16)):
        session = begin(recording.tokens[:place], 9)
        mine, other = again.lattice(session, depth, top), live(name, kit).lattice(session, depth, top)
        assert torch.equal(mine.ids, other.ids)
        torch.testing.assert_close(mine.logp, other.logp.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "values"), [("diffusion-lm", {"block": 4}), ("block-diffusion", {})])
def test_a_depth_that_was_not_recorded_is_the_beginning_of_the_next_longer_block(kit, recording, name, values):
    session = begin(recording.tokens[:9], 9)
    mine, other = Recorded(recording, name).lattice(session, 3), live(name, kit, **values).lattice(session, 3)
    assert torch.equal(mine.ids, other.ids)
    assert len(mine.ids) == 3


def test_the_best_candidates_of_a_diffusion_lm_are_the_chain_recorded_beside_them(recording):
    for length in LENGTHS:
        chains = [draft.tokens for draft in recording.drafts["diffusion-lm"][length]]
        assert chains == [tuple(one.ids[:, 0].tolist()) for one in recording.lattices["diffusion-lm"][length]]


def test_past_the_end_a_lattice_has_no_slots_and_beyond_the_longest_no_more(recording):
    again = Recorded(recording, "block-diffusion")
    assert again.lattice(begin(recording.tokens, 9), 4).ids.shape == (0, 5)
    assert len(again.lattice(begin(recording.tokens[:8], 30), 16).ids) == 6


def test_lattices_of_who_has_none_are_refused_with_those_there_are(recording):
    with pytest.raises(Refusal, match="no lattices of 'prompt-lookup'; it holds those of: diffusion-lm, block-diff"):
        Recorded(recording, "prompt-lookup").lattice(begin(PROMPT, 9), 4)


def test_lattices_survive_the_disk_in_four_bytes_a_candidate(recording, tmp_path):
    save_recording(recording, tmp_path / "a.safetensors")
    back = load_recording(tmp_path / "a.safetensors")
    assert back.blocks == recording.blocks
    for name, lengths in recording.lattices.items():
        assert list(lengths) == list(back.lattices[name])
        for length, kept in lengths.items():
            for mine, other in zip(kept, back.lattices[name][length], strict=True):
                assert torch.equal(mine.ids, other.ids)
                assert mine.ids.dtype == other.ids.dtype
                torch.testing.assert_close(mine.logp, other.logp, rtol=1e-3, atol=1e-3)
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert file.get_tensor("lattice/diffusion-lm/4/ids").dtype == torch.uint16
        assert file.get_tensor("lattice/diffusion-lm/4/logp").dtype == torch.float16


def test_lengths_come_back_from_the_shortest_to_the_longest(kit, tmp_path):
    recording = record(PROMPT, kit, ["diffusion-lm"], 3, (4, 8, 16), about={"vocab": 96, "end": []})
    save_recording(recording, tmp_path / "a.safetensors")
    assert list(load_recording(tmp_path / "a.safetensors").lattices["diffusion-lm"]) == [4, 8, 16]


def test_who_learns_from_rejected_nodes_is_asked_where_a_round_of_its_own_run_began():
    own = record(TEXT, network_kit(None), ["token-recycling"], 30, about={"vocab": 3, "end": []})
    [drafts], [took] = own.drafts["token-recycling"].values(), own.seconds["token-recycling"].values()
    begun, place = set(), 0
    while place < 30:
        begun.add(place)
        place += accepted_depth(drafts[place], own.output[place:]) + 1
    assert [seconds > 0 for seconds in took] == [place in begun for place in range(30)]
    assert len(begun) < 30


def test_tokens_of_a_large_vocabulary_are_kept_whole(recording, tmp_path):
    [*_, (length, kept)] = recording.lattices["block-diffusion"].items()
    kept[0].ids[0, 0], old = 123_456, int(kept[0].ids[0, 0])
    save_recording(recording, tmp_path / "a.safetensors")
    kept[0].ids[0, 0] = old
    assert int(load_recording(tmp_path / "a.safetensors").lattices["block-diffusion"][length][0].ids[0, 0]) == 123_456


def test_a_recording_made_before_there_were_lattices_is_read(recording, tmp_path):
    save_recording(recording, tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        header = {key: value for key, value in file.metadata().items() if key not in ("blocks", "sha256")}
        arrays = {key: file.get_tensor(key) for key in file.keys() if not key.startswith("lattice")}   # noqa: SIM118
    save_file(arrays, tmp_path / "old.safetensors", header)
    old = load_recording(tmp_path / "old.safetensors")
    assert old.lattices == {} == old.blocks
    assert len(Recorded(old, "diffusion-lm")(begin(old.tokens[:8], 9), Budget(4), NO_DICE)) == 4
    with pytest.raises(Refusal, match="those of: nobody"):
        old.lattice("diffusion-lm", 8, 4)
