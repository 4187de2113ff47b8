"""A recording can be given drafters: the text is checked, and what was there stays byte for byte."""

from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from specdec_lib.bench.environment import Environment
from specdec_lib.bench.prompts import Prompt
from specdec_lib.cards import TokenizerFacts
from specdec_lib.commands import record as record_module
from specdec_lib.commands.record import record_all
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.replay import load_recording, save_recording
from specdec_lib.recordings.record import drafter_names, extended, record
from specdec_lib.types import Refusal
from tests.held_folder import refused_beside_another
from tests.worlds import PROMPT, SHAPE, network_kit

QUESTION = Prompt(7, "qa", "qa", ("what comes next",), None)


@pytest.fixture(scope="module")
def kit():
    return network_kit(None)


def world(kit, **more):
    values = {"checkpoints": kit.checkpoints, "about": {"name": "tiny"}, "name": "token {}".format} | more
    return Environment(kit.target, lambda messages: PROMPT, str, object, TokenizerFacts(vocab=3, digit=frozenset({2})),
                       **values)


def arrays(path):
    with safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}       # noqa: SIM118


def test_a_drafter_that_is_added_says_what_it_says_when_recorded_at_once(kit):
    recording = record(PROMPT, kit, ["eagle"], 9)
    both = extended(recording, PROMPT, kit, ["diffusion-lm", "eagle2"], say=(told := []).append)
    assert told[1:] == ["diffusion-lm", "eagle2"]
    once = record(PROMPT, kit, ["eagle", "diffusion-lm", "eagle2"], 9)
    assert (both.drafts, both.trees, both.blocks) == (once.drafts, once.trees, once.blocks)
    for length, kept in once.lattices["diffusion-lm"].items():
        for mine, other in zip(kept, both.lattices["diffusion-lm"][length], strict=True):
            assert torch.equal(mine.ids, other.ids)
            assert torch.equal(mine.logp, other.logp)


def test_a_target_that_says_something_else_adds_nothing(kit):
    recording = record(PROMPT, kit, ["prompt-lookup"], 9)
    other = replace(kit, target=Transformer.random(SHAPE, seed=9, dtype=torch.float64))
    with pytest.raises(Refusal, match="differs from the recorded one at token"):
        extended(recording, PROMPT, other, ["diffusion-lm"])
    with pytest.raises(Refusal, match="differs from the recorded one at token 5"):
        extended(recording, (0, 1, 2, 0, 0), kit, ["diffusion-lm"])
    with pytest.raises(Refusal, match="differs from the recorded one at token 7"):         # behind an end of its own
        extended(recording, PROMPT, replace(kit, facts=TokenizerFacts(vocab=3, end=frozenset({1}))), ["diffusion-lm"])


def test_what_was_recorded_before_stays_byte_for_byte(kit, tmp_path):
    [path] = record_all([QUESTION], world(kit), tmp_path, ["eagle", "eagle2"], 9)
    before, about = arrays(path), load_recording(path).about
    record_all([QUESTION], world(kit), tmp_path, ["eagle", "diffusion-lm"], 99, add=True)
    after = arrays(path)
    assert len(after) > len(before)
    assert all(after[key].numpy().tobytes() == kept.numpy().tobytes() for key, kept in before.items())
    now = load_recording(path)
    assert about["pieces"]
    assert about["pieces"].items() <= now.about["pieces"].items()
    assert set(now.drafts) == {"eagle", "eagle2", "diffusion-lm"}
    assert set(now.lattices) == {"diffusion-lm"}
    assert {key: now.about[key] for key in about if key not in ("control", "digit", "pieces")} == {
        key: value for key, value in about.items() if key not in ("control", "digit", "pieces")}


def test_two_processes_do_not_record_in_one_folder(kit, tmp_path):
    with refused_beside_another(tmp_path):
        record_all([QUESTION], world(kit), tmp_path, ["prompt-lookup"], 4, add=True)


def test_an_addition_to_nothing_says_that_recordings_are_made_anew(kit, tmp_path):
    said = []
    [path] = record_all([QUESTION], world(kit), tmp_path / "new", ["prompt-lookup"], 4, said.append, add=True)
    assert said[0].endswith("new holds no recording of these prompts to add to: they are made anew")
    assert path.exists()


def test_every_addition_says_where_it_comes_from(kit, tmp_path):
    [path] = record_all([QUESTION], world(kit), tmp_path, ["prompt-lookup"], 9)
    assert "added" not in load_recording(path).about
    record_all([QUESTION], world(kit), tmp_path, ["diffusion-lm"], add=True)
    record_all([QUESTION], world(kit, about={"name": "small"}), tmp_path, ["diffusion-lm", "eagle"], add=True)
    added = load_recording(path).about["added"]
    assert [(one["drafters"], one["target"]["name"]) for one in added] == [(["diffusion-lm"], "tiny"),
                                                                         (["eagle"], "small")]
    assert all({"command", "commit", "versions", "created"} <= set(one["provenance"]) for one in added)


def test_a_file_that_was_written_does_not_make_the_next_one_say_that_files_were_changed(kit, tmp_path, monkeypatch):
    monkeypatch.setattr(record_module.provenance, "commit", lambda: {"changed": any(tmp_path.iterdir())})
    two = [QUESTION, replace(QUESTION, question_id=8, family="rag", category="rag")]
    paths = record_all(two, world(kit), tmp_path, ["prompt-lookup"], 4)
    assert [load_recording(path).about["provenance"]["changed"] for path in paths] == [False, False]


def test_every_candidate_of_a_lattice_has_its_text(kit, tmp_path):
    [path] = record_all([QUESTION], world(kit), tmp_path, ["block-diffusion"], 9)
    recording = load_recording(path)
    kept = [lattice for lengths in recording.lattices["block-diffusion"].values() for lattice in lengths]
    ids = {token for lattice in kept for token in lattice.ids.flatten().tolist()}
    assert ids == {0, 1, 2}                        # 1 is a token of the prompt, which no drafter was trained for
    assert {token: recording.pieces[token] for token in ids} == {token: f"token {token}" for token in ids}
    assert recording.about["digit"] == [2]


HOSTILE = ["../../away", "/absolute", "with/slash", "..", ".hidden", "a\\b", "nul\0", "x" * 300, "<b>:?", "two\nrows"]


def test_no_category_leads_out_of_the_folder(kit, tmp_path):
    out = tmp_path / "some" / "folder"
    absolute = str(tmp_path / "elsewhere")
    prompts = [replace(QUESTION, question_id=place, family=family)
               for place, family in enumerate([*HOSTILE, absolute])]
    paths = record_all(prompts, world(kit), out, ["prompt-lookup"], 2)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != out] == []
    assert sorted(out.iterdir()) == sorted(paths)
    assert [load_recording(path).about["family"] for path in paths] == [*HOSTILE, absolute]
    assert not [path.name for path in paths if path.name.startswith(".")]


def test_names_of_questions_lead_nowhere_either(kit, tmp_path):
    two = [replace(QUESTION, question_id=name) for name in ("../../a", "/b")]
    paths = record_all(two, world(kit), tmp_path / "out", ["prompt-lookup"], 2)
    assert [path.parent for path in paths] == [tmp_path / "out"] * 2
    assert all(path.is_file() for path in paths)


def test_two_prompts_never_share_a_file(kit, tmp_path):
    three = [QUESTION, replace(QUESTION, question_id=8), replace(QUESTION, question_id=9, family="qa-7")]
    with pytest.raises(Refusal, match="prompts 7 and 9 would both be recorded in qa-7.safetensors"):
        record_all(three, world(kit), tmp_path / "out", ["prompt-lookup"], 2)
    assert not (tmp_path / "out").exists()


def test_nothing_is_decoded_where_a_recording_has_all_the_drafters_or_may_not_be_added_to(kit, tmp_path):
    [path] = record_all([QUESTION], world(kit), tmp_path, ["eagle"], 9)
    whole, said = path.read_bytes(), []
    deaf = replace(world(kit), encode=None)        # fails as soon as a prompt is encoded
    record_all([QUESTION], deaf, tmp_path, ["eagle"], say=said.append, add=True)
    record_all([QUESTION], deaf, tmp_path, ["diffusion-lm"], say=said.append)
    assert path.read_bytes() == whole
    assert said == ["qa.safetensors has these drafters already", "qa.safetensors exists and is kept"]
    record_all([QUESTION], replace(deaf, about={"name": "big"}), tmp_path, ["eagle"], say=said.append, add=True)
    record_all([QUESTION], replace(deaf, about={"name": "big"}), tmp_path, ["eagle"], say=said.append)
    assert [line.partition(": ")[2] for line in said[2:]] == ["it is of tiny, and was not compared with big"] * 2
    path.write_bytes(whole[:len(whole) // 2])
    with pytest.raises(Refusal, match="qa.safetensors is damaged"):
        record_all([QUESTION], deaf, tmp_path, ["eagle"])


def test_a_part_that_does_not_exist_is_refused_before_anything_is_read(kit, tmp_path):
    with pytest.raises(Refusal, match="two drafters would be recorded as mine"):
        drafter_names(["mine=eagle", "mine=draft-model"])
    with pytest.raises(Refusal, match="no part named 'nobody'"):
        record_all([QUESTION], world(kit), tmp_path, ["nobody"], add=True)
    with pytest.raises(Refusal, match="match is no drafter; there are: "):
        record_all([QUESTION], world(kit), tmp_path, ["mine=match"])


def test_a_prompt_that_is_too_long_is_named_before_another_is_decoded(kit, tmp_path):
    here = replace(world(kit), encode=lambda messages: PROMPT * (40 if messages[0][1] == "long" else 1))
    long = replace(QUESTION, question_id=8, turns=("long",))
    with pytest.raises(Refusal, match="prompt 8 has 200 tokens in turn 1 and the target's context holds 128"):
        record_all([QUESTION, long], here, tmp_path, ["prompt-lookup"], 6)
    assert list(tmp_path.iterdir()) == []


def test_a_part_may_be_recorded_under_a_name_of_its_own_beside_itself(kit, tmp_path):
    [path] = record_all([QUESTION], world(kit), tmp_path, ["eagle"], 9)
    record_all([QUESTION], world(kit), tmp_path, ["other=eagle", "eagle"], 9, add=True)
    recording = load_recording(path)
    assert [d.tokens for d in recording.drafts["other"][4]] == [d.tokens for d in recording.drafts["eagle"][4]]
    assert recording.about["added"][-1]["drafters"] == ["other=eagle"]
    assert set(recording.drafts["other"][4][0].source) == {"other"}


@pytest.mark.parametrize("word", ["=draft-model", "a/b=draft-model"])
def test_a_name_that_a_file_cannot_hold_is_refused(kit, tmp_path, word):
    with pytest.raises(Refusal, match="NAME=PART"):
        record_all([QUESTION], world(kit), tmp_path, [word], 9)


def test_saving_again_changes_no_byte_of_an_array(kit, tmp_path):
    recording = record(PROMPT, kit, ["eagle2", "block-diffusion"], 9, about={"vocab": 3, "end": []})
    save_recording(recording, tmp_path / "a.safetensors")
    save_recording(load_recording(tmp_path / "a.safetensors"), tmp_path / "b.safetensors")
    one, other = arrays(tmp_path / "a.safetensors"), arrays(tmp_path / "b.safetensors")
    assert one.keys() == other.keys()
    assert all(one[key].numpy().tobytes() == other[key].numpy().tobytes() for key in one)
