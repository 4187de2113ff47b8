"""What is recorded of a drafter is what it says, for chains and trees alike, and it survives the disk."""

import itertools
import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.loop import begin, decode
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.replay import Replay, load_recording, save_recording, shipped_recordings
from specdec_lib.recordings.record import TREES, record
from specdec_lib.scores import Scores
from specdec_lib.types import NO_DICE, Budget, Draft
from specdec_lib.what.recorded import Recorded
from specdec_lib.when.fixed import Fixed
from tests.worlds import random_eagle

SHAPE = LlamaConfig(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, mlp=16, vocab=96, context=128)
PROMPT, IDS = (1, 2, 3, 4, 5, 6), tuple(range(0, 96, 4))
LARGEST = Budget(3, 3, 6)


@pytest.fixture(scope="module")
def kit():
    target = Transformer.random(SHAPE, seed=0, dtype=torch.float64)
    return Kit(target, TokenizerFacts(vocab=96), nodes=4, checkpoints={"eagle": random_eagle(SHAPE, (0, 1, 2), IDS)},
               parts=catalog.make_part)


@pytest.fixture(scope="module")
def recording(kit):
    return record(PROMPT, kit, ["eagle", "eagle2", "prompt-lookup"], 12, lengths=(2, 4), trees={"eagle2": LARGEST},
                  about={"vocab": 96, "end": [], "pieces": {}})


def part(name, kit, target=None):
    """Made live, where no node is left out for its price."""
    return catalog.make_part(name, Kit(target or kit.target.fresh(), kit.facts, checkpoints=kit.checkpoints, price=0.0,
                                       parts=catalog.make_part))


def same(one, other):
    """The same nodes; a head that came here another way differs in the last digits."""
    return ((one.tokens, one.parents) == (other.tokens, other.parents)
            and one.confidence == pytest.approx(other.confidence, abs=1e-9))


class Tied:
    """A target whose best logits are often equal, as they are in bfloat16."""

    context = None

    def fresh(self):
        return self

    def prefill(self, tokens):
        """Nothing to do."""

    def __call__(self, tokens, draft):
        return Scores(torch.randn(1, 96, generator=torch.Generator().manual_seed(sum(tokens))).round())


def test_the_text_is_plain_decodings_where_logits_are_equal():
    target = Tied()
    recording = record(PROMPT, Kit(target, TokenizerFacts(vocab=96), nodes=4, parts=catalog.make_part), [], 12)
    for length in range(6, 18):
        assert recording.tokens[length] == target(recording.tokens[:length], Draft()).best[0]


def test_no_node_is_left_out_of_a_recording_for_its_price(kit, recording):
    dear = record(PROMPT, replace(kit, price=.5), ["eagle2"], 3, trees={"eagle2": LARGEST}, about=recording.about)
    assert [len(kept) for kept in dear.drafts["eagle2"][6]] == [len(kept) for kept in recording.drafts["eagle2"][6]][:3]


def test_a_drafter_of_trees_is_recorded_once_and_chains_at_each_length(recording):
    assert {name: tuple(kept) for name, kept in recording.drafts.items()} == {
        "eagle": (2, 4), "eagle2": (6,), "prompt-lookup": (2, 4)}
    assert recording.trees == {"eagle2": LARGEST}
    assert all(len(kept) == 12 for lengths in recording.seconds.values() for kept in lengths.values())


def test_every_smaller_tree_of_every_place_is_the_live_drafters(kit, recording):
    lead, again = part("eagle2", kit), Recorded(recording, "eagle2")
    for place, depth, width, nodes in itertools.product(range(6, 18), (1, 2, 3), (1, 2, 3), (1, 3, 4, 6)):
        session, budget = begin(recording.tokens[:place], 9), Budget(depth, width, nodes)
        assert same(again(session, budget, NO_DICE), lead(session, budget, NO_DICE)), (place, budget)


def test_every_chain_of_every_place_is_the_live_drafters(kit, recording):
    lead, again = part("eagle", kit), Recorded(recording, "eagle")
    for place, depth in itertools.product(range(6, 18), (1, 2, 3, 4)):
        session = begin(recording.tokens[:place], 9)
        assert same(again(session, Budget(depth), NO_DICE), lead(session, Budget(depth), NO_DICE))


@pytest.mark.parametrize("budget", [(2, 3, 4), (3, 2, 6), (3, 1, 3)], ids=str)
def test_a_decode_with_recorded_trees_takes_the_rounds_of_the_live_one(kit, recording, budget):
    fresh, when = kit.target.fresh(), Fixed(*budget)
    match, lead = catalog.make_part("match", kit), part("eagle2", kit, fresh)
    *_, live = decode(PROMPT, fresh, when, lead, match, max_new_tokens=12)
    *_, again = decode(PROMPT, Replay(recording), when, Recorded(recording, "eagle2"), match, max_new_tokens=12)
    assert again.tokens == live.tokens == recording.tokens
    assert [(r.draft.tokens, r.draft.parents, r.verdict) for r in again.rounds] == [
        (r.draft.tokens, r.draft.parents, r.verdict) for r in live.rounds]


def test_forests_survive_the_disk(recording, tmp_path):
    save_recording(recording, tmp_path / "a.safetensors")
    back = load_recording(tmp_path / "a.safetensors")
    assert back.trees == {"eagle2": LARGEST}
    session, budget = begin(recording.tokens[:8], 9), Budget(2, 3, 4)
    one, other = (Recorded(recording, "eagle2")(session, budget, NO_DICE) for recording in (recording, back))
    assert (one.tokens, one.parents) == (other.tokens, other.parents)
    assert len(one) == 4
    assert one.confidence == pytest.approx(other.confidence, abs=1e-6)


def test_a_recording_made_before_there_were_forests_is_read(recording, tmp_path):
    save_recording(recording, tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        header = {key: value for key, value in file.metadata().items() if key not in ("trees", "sha256")}
        arrays = {key: file.get_tensor(key) for key in file.keys() if "eagle2" not in key}       # noqa: SIM118
    save_file(arrays, tmp_path / "old.safetensors", header)
    assert load_recording(tmp_path / "old.safetensors").trees == {}
    assert json.loads(header["about"])["vocab"] == 96


def test_the_drafters_of_trees_are_parts_that_there_are():
    assert set(TREES) <= set(catalog.parts()["what"])
    assert all(largest.width > 1 for largest in TREES.values())


# The shipped recordings.

@pytest.fixture(scope="module", params=sorted(shipped_recordings()))
def shipped(request):
    return load_recording(shipped_recordings()[request.param])


def test_every_shipped_recording_holds_the_trees_of_eagle2_at_every_place(shipped):
    [(nodes, kept)] = shipped.drafts["eagle2"].items()
    assert shipped.trees == {"eagle2": TREES["eagle2"]}
    assert nodes == TREES["eagle2"].size
    assert len(kept) == len(shipped.output)
    assert 25 < sum(map(len, kept)) / len(kept) < 40
    assert shipped.about["provenance"]["changed"] is False


def test_a_shipped_recording_replays_its_text_from_trees_of_any_size(shipped):
    for budget in ((6, 4, 16), (5, 4, 6), (2, 2, 4)):
        when, match = Fixed(*budget), catalog.make_part("match", Kit(Replay(shipped)))
        *_, last = decode(shipped.tokens[:shipped.prompt], Replay(shipped), when, Recorded(shipped, "eagle2"), match,
                          max_new_tokens=len(shipped.output), end=shipped.end)
        assert last.tokens == shipped.tokens
        assert len(last.rounds) < .8 * len(shipped.output)


def test_the_shipped_recordings_stay_small():
    sizes = [path.stat().st_size for path in shipped_recordings().values()]
    lattices = {name for path in shipped_recordings().values() for name in load_recording(path).lattices}
    assert sum(sizes) < 2.5e6 + 2e6 * len(lattices)
    assert sum(sizes) < 6e6


def test_what_was_added_to_a_shipped_recording_comes_from_a_commit(shipped):
    assert all(one["provenance"]["changed"] is False for one in shipped.about.get("added", []))
