"""Checkpoints on disk: what is saved is read, damage is refused, and a shelf reads only what it is asked for."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specdec_lib.checkpoints.card import card_text, read_card, write_card
from specdec_lib.checkpoints.checkpoint_files import (
    CheckpointFolder,
    base_matrix,
    load_checkpoint,
    replace_checkpoint,
    save_checkpoint,
)
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.types import Refusal

SHAPE = LlamaConfig(layers=3, hidden=16, heads=2, kv_heads=1, head_dim=8, mlp=32, vocab=31, context=64)
TARGET = Transformer.random(SHAPE)
MADE_FOR = fingerprint(TARGET, None)
CARD = {"target": "tiny", "made": {"command": "specdec train eagle", "minutes": 2.0, "data": None},
        "settings": {"seed": 0}, "measured": {"acceptance_by_depth": [0.5, 0.25]}, "limits": ["Trained on English."]}
STATE = {"fc": torch.eye(16), "norm": torch.ones(16), "ids": torch.tensor([1, 5, 30])}


def put(folder, name="eagle", state=STATE, meta=None, plan=None, weights=None):
    return save_checkpoint(folder, name, state, meta or {"taps": [1, 2]}, CARD, plan or {}, weights, MADE_FOR)


def shelf(folder, target=TARGET, heard=None, **more):
    return CheckpointFolder(folder, target, name="mine", warn=(lambda line: None) if heard is None else heard.append,
                            **more)


def test_saving_returns_the_checkpoint_that_loading_gives(tmp_path):
    given = {**STATE, "fc": torch.randn(16, 16)}
    saved, read = put(tmp_path, state=given), load_checkpoint(tmp_path, "eagle")
    assert all(torch.equal(saved.state[key], read.state[key]) for key in given)
    assert set(read.state) == set(given)
    assert read.meta == {"taps": [1, 2]}
    assert read.card == saved.card
    assert not torch.equal(read.state["fc"], given["fc"])                        # int8: the loss is in it already


def test_the_card_counts_parameters_and_bytes_and_names_the_target_and_the_loss(tmp_path):
    card = put(tmp_path).card
    assert card["parameters"] == 16 * 16 + 16
    assert card["bytes"] == (tmp_path / "eagle" / "model.safetensors").stat().st_size
    assert len(card["sha256"]) == 64
    assert card["target"] == {"name": "tiny", "fingerprint": MADE_FOR}
    assert card["storage"]["fc"] == {"scheme": "int8/64", "relative_error": pytest.approx(0, abs=1e-3)}


def test_saving_again_replaces_both_files_and_leaves_no_others(tmp_path):
    put(tmp_path)
    put(tmp_path, state={**STATE, "norm": torch.zeros(16)})
    assert not load_checkpoint(tmp_path, "eagle").state["norm"].any()
    assert {path.name for path in (tmp_path / "eagle").iterdir()} == {"model.safetensors", "card.json", "README.md"}


def test_a_failed_write_leaves_the_old_checkpoint_in_place(tmp_path):
    put(tmp_path)

    def half(path):
        path.write_bytes(b"half")
        raise OSError("the disk failed")
    with pytest.raises(OSError, match="the disk failed"):
        replace_checkpoint(tmp_path, "eagle", half, {**CARD, "parameters": 1}, MADE_FOR)
    assert torch.equal(load_checkpoint(tmp_path, "eagle").state["norm"], STATE["norm"])
    assert len(list((tmp_path / "eagle").iterdir())) == 3


def test_a_kill_before_the_renaming_leaves_the_old_checkpoint_in_place(tmp_path, monkeypatch):
    put(tmp_path)

    def killed(*paths):
        raise KeyboardInterrupt
    monkeypatch.setattr("specdec_lib.files.os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        put(tmp_path, state={**STATE, "norm": torch.zeros(16)})
    assert torch.equal(load_checkpoint(tmp_path, "eagle").state["norm"], STATE["norm"])


def test_a_card_without_its_limits_is_not_written(tmp_path):
    card = {key: value for key, value in CARD.items() if key != "limits"}
    with pytest.raises(ValueError, match="lacks limits"):
        save_checkpoint(tmp_path, "eagle", STATE, {}, card, {}, None, MADE_FOR)


def test_differences_from_the_targets_layers_come_back_and_need_the_target(tmp_path):
    layers, trained = [0, 2], {}
    for i, at in enumerate(layers):
        for kind in ("qkv", "out", "gate_up", "down"):
            start = getattr(TARGET.weights.layers[at], kind).dense()
            trained[f"layers.{i}.{kind}"] = start + 0.01 * torch.outer(torch.ones(len(start)), start[0])
    put(tmp_path, "draft-lm", trained, {"layers": layers}, {"layers.*": "+rank1"}, TARGET.weights)
    read = load_checkpoint(tmp_path, "draft-lm", TARGET.weights).state
    assert max(float((read[key] - trained[key]).abs().max()) for key in trained) < 1e-4
    with pytest.raises(ValueError, match="no base"):
        load_checkpoint(tmp_path, "draft-lm")


def test_a_single_layer_starts_from_the_last_one_with_an_empty_half_for_the_embedding():
    base, last = base_matrix(TARGET.weights, {}), TARGET.weights.layers[-1]
    assert torch.equal(base("down"), last.down.dense())
    assert torch.equal(base("qkv")[:, 16:], last.qkv.dense())
    assert not base("qkv")[:, :16].any()
    with pytest.raises(ValueError, match="fc"):
        base("fc")


def test_a_start_with_attentions_scale_in_its_queries_differs_from_the_base_in_nothing(tmp_path):
    target = Transformer.random(replace(SHAPE, head_norms=True))
    start = DraftLMNet(target, torch.arange(8))
    saved = put(tmp_path, "draft-lm", start.state(), start.meta(), {"layers.*": "+int4/32"}, target.weights)
    read = load_checkpoint(tmp_path, "draft-lm", target.weights).state
    assert all(torch.equal(read[key], start.state()[key]) for key in saved.state if key.startswith("layers"))
    of_format_1 = base_matrix(target.weights, start.meta(), 1)
    assert torch.equal(of_format_1("layers.0.qkv"), target.weights.layers[0].qkv.dense())


@pytest.mark.parametrize(("damage", "word"), [("cut", "bytes and its card says"), ("flip", "checksum"),
                                          ("gone", "missing beside its card"), ("card", "no readable card"),
                                          ("empty card", "no readable card"), ("deep card", "no readable card")])
def test_a_damaged_checkpoint_is_refused_in_one_sentence_with_a_remedy(tmp_path, damage, word):
    put(tmp_path)
    weights, card = tmp_path / "eagle" / "model.safetensors", tmp_path / "eagle" / "card.json"
    data = weights.read_bytes()
    if damage == "cut":
        weights.write_bytes(data[:-10])
    elif damage == "flip":
        weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "gone":
        weights.unlink()
    else:
        card.write_text({"card": card.read_text()[:40], "empty card": "{}", "deep card": "[" * 100_000}[damage])
    with pytest.raises(Refusal, match=word) as said:
        load_checkpoint(tmp_path, "eagle")
    assert "`specdec train eagle`" in str(said.value)
    assert "\n" not in str(said.value)


def test_weights_that_are_no_checkpoint_are_refused_even_with_the_right_checksum(tmp_path):
    replace_checkpoint(tmp_path, "eagle", lambda path: path.write_bytes(b"\x00" * 64), {**CARD, "parameters": 1},
                       MADE_FOR)
    with pytest.raises(Refusal, match="holds no checkpoint"):
        load_checkpoint(tmp_path, "eagle")


@pytest.mark.parametrize(("changed", "said"), [
    ({"meta": []}, "holds no checkpoint"), ({"meta": {"taps": 3}}, "holds no checkpoint"),
    ({"meta": {"taps": ["a"]}}, r"taps are \['a'\] in the header"), ({"meta": {"layers": [99]}}, r"layers are \[99\]"),
    ({"meta": {"block": 0}}, "block is 0 in the header"), ({"meta": {"base": "x"}}, "holds no checkpoint"),
    ({"meta": {"base": {"name": "x"}}}, "holds no checkpoint"), ({"tensors": []}, "holds no checkpoint"),
    ({"tensors": {"fc": {"scheme": 5, "shape": [16, 16]}}}, "holds no checkpoint"),
    ({"tensors": {"fc": {"scheme": "+int8", "shape": [16, 16]}}}, "holds no checkpoint"),
    ({"tensors": {"fc": {"scheme": "int8", "shape": ["a"]}}}, "holds no checkpoint")])
def test_a_header_with_a_part_of_another_kind_is_refused_even_with_the_right_checksum(tmp_path, changed, said):
    put(tmp_path)
    path = tmp_path / "eagle" / "model.safetensors"
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["specdec"]) | changed
        tensors = {name: file.get_tensor(name) for name in file.keys()}            # noqa: SIM118
    replace_checkpoint(tmp_path, "eagle", lambda place: save_file(tensors, place, {"specdec": json.dumps(header)}),
                       {**CARD, "parameters": 1}, MADE_FOR)
    with pytest.raises(Refusal, match=f"{said}.*`specdec train eagle` makes"):
        shelf(tmp_path)["eagle"]


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    put(tmp_path)
    path = tmp_path / "eagle" / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}            # noqa: SIM118
        header = file.metadata()
    tensors["norm:all"][3] = float("nan")
    replace_checkpoint(tmp_path, "eagle", lambda place: save_file(tensors, place, header), {**CARD, "parameters": 1},
                       MADE_FOR)
    with pytest.raises(Refusal, match="holds numbers that are not finite: `specdec train eagle` makes another"):
        load_checkpoint(tmp_path, "eagle")


def test_a_value_that_the_header_lacks_is_refused_where_it_is_read(tmp_path):
    put(tmp_path, meta={"longest": 3})
    found = load_checkpoint(tmp_path, "eagle", TARGET.weights)
    assert (found.meta, found.meta.get("taps")) == ({"longest": 3}, None)
    with pytest.raises(Refusal, match="there is no 'taps' in the header of .*`specdec train eagle` makes another"):
        found.meta["taps"]


def test_names_in_a_folder_are_known_without_reading_weights(tmp_path):
    (tmp_path / "eagle").mkdir()
    (tmp_path / "eagle" / "card.json").write_text("{")
    here = shelf(tmp_path, target=None)
    assert "eagle" in here
    assert "ngram" not in here
    assert list(here) == ["eagle"]
    assert len(here) == 1
    assert list(shelf(tmp_path / "nowhere")) == []
    assert shelf(tmp_path).get("ngram") is None


def test_a_checkpoint_is_read_once_and_warned_about_once(tmp_path):
    put(tmp_path)
    heard = []
    here = shelf(tmp_path, Transformer.random(SHAPE, seed=1), heard)
    assert here["eagle"] is here["eagle"]
    assert len(heard) == 1
    assert "other weights" in heard[0]


def test_the_target_it_was_made_for_gets_no_warning_and_another_one_is_refused(tmp_path):
    put(tmp_path)
    heard = []
    assert shelf(tmp_path, heard=heard)["eagle"].name == "eagle"
    assert heard == []
    with pytest.raises(Refusal, match="trained for tiny, and mine has another architecture"):
        shelf(tmp_path, Transformer.random(replace(SHAPE, layers=2)))["eagle"]


def test_another_format_is_read_by_its_reader_after_the_same_checks(tmp_path):
    replace_checkpoint(tmp_path, "ngram", lambda path: path.write_bytes(b"counts"), {**CARD, "parameters": 6},
                       {"tokenizer": None})
    readers = {"ngram": lambda path: path.read_bytes()}
    assert shelf(tmp_path, readers=readers)["ngram"] == b"counts"
    (tmp_path / "ngram" / "model.safetensors").write_bytes(b"count")
    with pytest.raises(Refusal, match="bytes"):
        shelf(tmp_path, readers=readers)["ngram"]


def test_a_card_can_be_completed_after_the_weights_were_saved(tmp_path):
    put(tmp_path)
    write_card(tmp_path, "eagle", read_card(tmp_path, "eagle") | {"measured": {"tokens_per_target_forward": 1.875}})
    assert load_checkpoint(tmp_path, "eagle").card["measured"] == {"tokens_per_target_forward": 1.875}
    assert "- tokens_per_target_forward: 1.875" in (tmp_path / "eagle" / "README.md").read_text()


def test_the_text_of_a_card_has_its_values(tmp_path):
    shown = card_text(put(tmp_path).card)
    for line in ("# eagle", "- command: `specdec train eagle`", "- acceptance_by_depth: 0.5, 0.25", "- data: not known",
                 "- Trained on English.", "| norm | float32 | 0.00% |"):
        assert line in shown.splitlines()


def test_the_tokenizer_is_hashed_only_when_a_checkpoint_is_read(tmp_path):
    put(tmp_path)
    asked = []
    text = SimpleNamespace(tokenizer=SimpleNamespace(get_vocab=lambda: asked.append(1) or {"a": 0}))
    here = shelf(tmp_path, text=text)
    assert "eagle" in here
    assert asked == []
    assert here["eagle"]
    assert asked == [1]


def layered(folder, name, meta, seed, base=None):
    """One layer near the target's second, at rank 2, as a difference; with a base, near the base's."""
    near = base.state["layers.0.qkv"] if base else TARGET.weights.layers[1].qkv.dense()
    dice = torch.Generator().manual_seed(seed)
    change = torch.randn(len(near), 2, generator=dice) @ torch.randn(2, near.shape[1], generator=dice)
    return near + change, put(folder, name, {"layers.0.qkv": near + change}, {"layers": [1], **meta},
                              {"layers.*": "+rank2"}, TARGET.weights)


def test_a_difference_from_another_checkpoint_is_read_with_that_one_beside_it(tmp_path):
    _, base = layered(tmp_path, "base", {}, 0)
    there = {"base": {"name": "base", "sha256": base.card["sha256"]}}
    true, saved = layered(tmp_path, "further", there, 1, base)
    for read in (saved, load_checkpoint(tmp_path, "further", TARGET.weights), shelf(tmp_path)["further"]):
        error = (read.state["layers.0.qkv"] - true).norm() / true.norm()
        assert error < 0.02
        assert torch.equal(read.state["layers.0.qkv"], saved.state["layers.0.qkv"])


@pytest.mark.parametrize("what", ["none", "another"])
def test_a_difference_from_a_checkpoint_that_is_not_there_is_refused_with_what_makes_it(tmp_path, what):
    _, base = layered(tmp_path, "base", {}, 0)
    layered(tmp_path, "further", {"base": {"name": "base", "sha256": base.card["sha256"]}}, 1, base)
    if what == "none":
        (tmp_path / "base" / "card.json").unlink()
    else:
        layered(tmp_path, "base", {}, 2)
    sentence = (rf"^further is a difference from the base with the checksum {base.card['sha256'][:12]}, and .* holds "
                rf"{what}: copy that one beside it, or .* `specdec train further`$")
    with pytest.raises(Refusal, match=sentence):
        shelf(tmp_path)["further"]
    with pytest.raises(Refusal, match=sentence):
        layered(tmp_path, "further", {"base": {"name": "base", "sha256": base.card["sha256"]}}, 1, base)
