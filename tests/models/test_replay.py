"""A replayed decode is the recorded one, round for round."""

from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.loop import decode
from specdec_lib.models.replay import Replay, load_recording, save_recording
from specdec_lib.models.table import Table
from specdec_lib.recordings.record import record
from specdec_lib.types import Draft, Refusal
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.what.recorded import Recorded
from specdec_lib.when.confidence import Confidence
from specdec_lib.when.fixed import Fixed

PROMPT = (3, 1, 2, 0)


def random_table(seed: int, vocab: int = 96) -> Table:
    dice = torch.Generator().manual_seed(seed)
    rows = {(a,): torch.softmax(3 * torch.randn(vocab, generator=dice, dtype=torch.float64), -1).tolist()
            for a in range(vocab)}
    return Table(rows | {(): [1 / vocab] * vocab})


@pytest.fixture(scope="module")
def kit():
    target = random_table(0)
    near = Table({key: [.7 * a + .3 * b for a, b in zip(row, random_table(1).rows[key], strict=True)]
                  for key, row in target.rows.items()})
    return Kit(target, TokenizerFacts(vocab=96), draft=near, nodes=8, parts=catalog.make_part)


@pytest.fixture(scope="module")
def recording(kit):
    return record(PROMPT, kit, ["draft-model"], max_new_tokens=40, about={"vocab": 96, "end": [], "pieces": {}})


def finish(sessions):
    for session in sessions:
        pass
    return session


@pytest.mark.parametrize("when", [Fixed(0), Fixed(2), Fixed(5), Confidence(8, .3), Confidence(16, .6)], ids=str)
def test_a_replay_takes_the_same_rounds_as_the_live_run(kit, recording, when):
    how = catalog.make_part("match", kit)
    live = finish(decode(PROMPT, kit.target, when, DraftModel(kit.draft), how, max_new_tokens=40))
    again = finish(decode(PROMPT, Replay(recording), when, Recorded(recording, "draft-model"), how, max_new_tokens=40))
    assert again.tokens == live.tokens
    assert [r.verdict for r in again.rounds] == [r.verdict for r in live.rounds]
    assert [r.draft.tokens for r in again.rounds] == [r.draft.tokens for r in live.rounds]
    for one, other in zip(again.rounds, live.rounds, strict=True):
        assert one.row_stats.entropy == pytest.approx(other.row_stats.entropy, abs=1e-5)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_saved_recording_loads_as_it_was(recording, tmp_path):
    save_recording(recording, tmp_path / "a.safetensors")
    back = load_recording(tmp_path / "a.safetensors")
    assert back.tokens == recording.tokens
    assert back.prompt == recording.prompt
    assert torch.equal(back.row_stats.ids, recording.row_stats.ids)
    mine, theirs = back.drafts["draft-model"][8], recording.drafts["draft-model"][8]
    assert [draft.tokens for draft in mine] == [draft.tokens for draft in theirs]
    assert mine[3].stats[0] == pytest.approx(theirs[3].stats[0], abs=1e-6)


def test_a_chain_that_is_the_beginning_of_a_longer_one_is_stored_once_and_read_at_every_length(recording, tmp_path):
    save_recording(recording, tmp_path / "a.safetensors")
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        names = file.keys()
    assert {name for name in names if name.endswith("/tokens")} == {"draft/draft-model/16/tokens"}
    back = load_recording(tmp_path / "a.safetensors").drafts["draft-model"]
    assert {length: [draft.tokens for draft in drafts] for length, drafts in back.items()} == {
        length: [draft.tokens for draft in drafts] for length, drafts in recording.drafts["draft-model"].items()}
    assert [len(draft.stats) for draft in back[4]] == [len(draft) for draft in back[4]]


def test_redundant_parts_are_not_stored_and_load_as_they_were(recording, tmp_path):
    chains = {name: tuple(draft.keep(tuple(range(len(draft)))) for draft in recording.drafts["draft-model"][4])
              for name in ("as drawn", "doubted", "branched", "unseen")}
    chains["doubted"] = tuple(replace(draft, confidence=(.5,) * len(draft)) for draft in chains["doubted"])
    chains["branched"] = tuple(replace(draft, parents=(-1,) * len(draft)) for draft in chains["branched"])
    chains["unseen"] = tuple(replace(draft, stats=(), confidence=()) for draft in chains["unseen"])
    one = replace(recording, drafts={name: {4: drafts} for name, drafts in chains.items()},
                  seconds={name: {4: (0.,) * len(drafts)} for name, drafts in chains.items()})
    save_recording(one, tmp_path / "a.safetensors")
    save_recording(load_recording(tmp_path / "a.safetensors"), tmp_path / "b.safetensors")
    back = load_recording(tmp_path / "b.safetensors")
    for name, drafts in chains.items():
        for mine, theirs in zip(back.drafts[name][4], drafts, strict=True):
            assert (mine.tokens, mine.parents, len(mine.stats)) == (theirs.tokens, theirs.parents, len(theirs.stats))
            assert mine.confidence == pytest.approx(theirs.confidence, abs=1e-6)
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        kept = {name: {key.rsplit("/", 1)[1]: file.get_tensor(key).numel() for key in file.keys()      # noqa: SIM118
                       if key.startswith(f"draft/{name}/")} for name in chains}
    assert "parents" not in kept["as drawn"]
    assert kept["as drawn"]["belief"] == 0 < kept["doubted"]["belief"]
    assert kept["branched"]["parents"] == kept["branched"]["tokens"]
    assert "belief" not in kept["unseen"]


def test_a_shorter_chain_with_another_token_is_stored_beside_the_longer_one(recording, tmp_path):
    chains = dict(recording.drafts["draft-model"])
    chains[4] = (*chains[4][:-1], replace(chains[4][-1], tokens=(95, *chains[4][-1].tokens[1:])))
    save_recording(replace(recording, drafts={"draft-model": chains}), tmp_path / "a.safetensors")
    back = load_recording(tmp_path / "a.safetensors").drafts["draft-model"]
    assert back[4][-1].tokens[0] == 95 != back[8][-1].tokens[0]


def test_a_context_off_the_path_is_refused(recording):
    with pytest.raises(Refusal, match="not on the recorded path"):
        Replay(recording)((9, 9, 9, 9), Draft())


def test_a_damaged_or_missing_recording_is_refused(recording, tmp_path):
    save_recording(recording, tmp_path / "a.safetensors")
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(whole[:len(whole) // 2])
    with pytest.raises(Refusal, match="damaged"):
        load_recording(tmp_path / "a.safetensors")
    with pytest.raises(Refusal, match="no recording"):
        load_recording(tmp_path / "b.safetensors")


@pytest.mark.parametrize("changed", [{"end": "x"}, {"end": ["x"]}, {"vocab": 10 ** 12}, {"vocab": None},
                                     {"pieces": [1]}, {"added": 5}, {"target": "x"}])
def test_a_header_with_a_part_of_another_kind_is_refused(recording, tmp_path, changed):
    save_recording(replace(recording, about={**recording.about, **changed}), tmp_path / "a.safetensors")
    with pytest.raises(Refusal, match="damaged"):
        load_recording(tmp_path / "a.safetensors")


def test_an_unknown_drafter_is_refused_with_the_known_names(recording):
    with pytest.raises(Refusal, match="draft-model"):
        recording.draft("eagle", 5, 4)


def test_rows_off_the_path_hold_no_token_of_the_target(recording):
    right, wrong = recording.output[0], (recording.output[0] + 1) % 96
    draft = Draft((right, wrong, right), (-1, -1, 1))
    best = Replay(recording)(PROMPT, draft).best
    assert best == (right, recording.output[1], -1, -1)


def test_recorded_rows_have_the_logits_of_their_likeliest_tokens_and_no_others(recording):
    scores, told = Replay(recording)(PROMPT, Draft((recording.output[0], 95), (-1, 0))), recording.row_stats
    assert (len(scores), scores.columns) == (3, 96)
    for row in (0, 1):
        ids = told.ids[row].tolist()
        dense = {token: logit for token, logit in enumerate(scores.given[row].tolist()) if logit > -torch.inf}
        assert dense == dict(zip(ids, told.logits[row].tolist(), strict=True))
        assert [scores.logit(row, token) for token in range(96)] == scores.given[row].tolist()
    assert (scores.given[2] == -torch.inf).all()
    assert scores.logit(2, 95) == -torch.inf
    assert scores.row_stats((0, 1), 3).lse == told.lse[:2]


def test_flipped_bits_of_a_recording_are_found_and_the_file_stays(recording, tmp_path):
    path = tmp_path / "a.safetensors"
    save_recording(recording, path)
    data = path.read_bytes()
    for place in (len(data) - 1, len(data) // 2, data.index(b'"prompt":"') + 10):  # the last in the header
        spoilt = data[:place] + bytes([data[place] ^ 1]) + data[place + 1:]
        path.write_bytes(spoilt)
        with pytest.raises(Refusal, match="damaged"):
            load_recording(path)
        assert path.read_bytes() == spoilt
