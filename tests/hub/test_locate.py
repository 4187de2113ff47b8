"""Names become folders of safetensors, or one sentence that says why not."""

import json
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import GatedRepoError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
from huggingface_hub.utils import filter_repo_objects
from safetensors import safe_open
from safetensors.numpy import save_file

from specdec_lib.hub import locate
from specdec_lib.hub.build_cache import checked_folder
from specdec_lib.hub.locate import default_target, model_folder
from specdec_lib.types import Refusal


@pytest.fixture
def folder(tmp_path):
    """A complete target folder, as far as names and headers go."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    save_file({"model.norm.weight": np.ones(1000, dtype=np.float32)}, tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def hub(monkeypatch):
    """A hub that records what it is asked for, and answers with a folder or an error."""
    asked = {}

    def snapshot_download(name, **options):
        asked.update(options, name=name)
        if isinstance(asked["answer"], Exception):
            raise asked["answer"]
        return str(asked["answer"])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_the_default_target_is_what_the_wheel_holds():
    with safe_open(str(model_folder() / "model.safetensors"), framework="numpy") as file:
        names = set(file.keys())
        embedding = file.get_tensor("model.embed_tokens.weight")
    assert len(names) == 272
    assert "lm_head.weight" not in names
    assert embedding.shape == (49152, 576)
    assert embedding.dtype == np.float32


def test_the_default_targets_checksums_hold():
    assert checked_folder(model_folder(), deep=True) == model_folder()


def test_the_default_target_is_built_in_the_cache_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = default_target(make=lambda folder, say: (folder / "config.json").write_text("{}"))
    assert folder.parent == tmp_path / "specdec"
    assert folder.name.startswith("smollm2-135m-")


def test_a_local_folder_is_taken_as_it_is(folder):
    assert model_folder(str(folder)) == folder


def test_a_split_model_with_a_missing_piece_is_refused(folder):
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "second.safetensors"}}))
    with pytest.raises(Refusal, match="second.safetensors"):
        model_folder(str(folder))
    index.write_text("{")
    with pytest.raises(Refusal, match="index.json is not readable"):
        model_folder(str(folder))


def test_pickled_weights_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(Refusal, match="only safetensors"):
        model_folder(str(folder))


def test_a_folder_without_weights_or_without_config_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(Refusal, match="has no weights"):
        model_folder(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(Refusal, match="no config.json"):
        model_folder(str(folder))


@pytest.mark.parametrize("kept", [0, 4, 200, 2000])
def test_weights_that_are_cut_short_are_refused(folder, kept):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(Refusal, match="no whole safetensors file"):
        model_folder(str(folder))


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "~/no-such-folder", "a/b/c", "", " "])
def test_a_path_that_is_not_there_is_refused_without_asking_the_hub(name, hub):
    with pytest.raises(Refusal, match="there is no folder"):
        model_folder(name)
    assert not hub


@pytest.mark.parametrize("error", [OSError("offline"), HFValidationError("odd name"),
                                   LocalEntryNotFoundError("not in the cache")])
def test_a_name_that_the_hub_cannot_give_is_refused_in_one_sentence(hub, error):
    hub["answer"] = error
    with pytest.raises(Refusal, match="someone/something cannot be fetched from the Hugging Face hub") as refusal:
        model_folder("someone/something")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("kind", "remedy"), [
    (GatedRepoError, "accept its licence on its page of the hub and log in with `hf auth login`, or give"),
    (RepositoryNotFoundError, "check the name, or log in with `hf auth login` if it is private, or give")])
def test_a_model_that_the_hub_does_not_show_to_everyone_is_refused_with_how_to_log_in(hub, kind, remedy):
    hub["answer"] = kind("no", response=SimpleNamespace(headers={}, request=None))
    with pytest.raises(Refusal, match=remedy):
        model_folder("someone/something")


def test_a_repository_without_safetensors_is_refused_with_how_to_rewrite_it(hub, folder):
    (folder / "model.safetensors").unlink()
    hub["answer"] = folder
    with pytest.raises(Refusal, match="the repository someone/something has no safetensors.*AutoModelForCausalLM"):
        model_folder("someone/something")
    with pytest.raises(Refusal, match="the only weights that are read: do this"):
        model_folder("someone/something", convert="do this")


def test_an_adapter_is_refused_with_how_to_merge_it(folder):
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(Refusal, match="is an adapter and no whole model: merge it with peft's merge_and_unload"):
        model_folder(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(Refusal, match="is an adapter"):
        model_folder(str(folder))


@pytest.mark.parametrize(("file", "asked"), [
    ("model.safetensors", True), ("model-00001-of-00003.safetensors", True), ("consolidated.safetensors", False),
    ("consolidated-00001-of-00002.safetensors", False), ("original/model.safetensors", False)])
def test_weights_that_a_repository_holds_twice_are_fetched_once(hub, folder, file, asked):
    hub["answer"] = folder
    model_folder("someone/something")
    found = filter_repo_objects([file], allow_patterns=hub["allow_patterns"], ignore_patterns=hub["ignore_patterns"])
    assert list(found) == [file] * asked


def test_the_hub_is_never_asked_for_pickled_weights_or_code(hub, folder):
    hub["answer"] = folder
    assert model_folder("someone/something") == folder
    assert not {pattern.rsplit(".", 1)[-1] for pattern in hub["allow_patterns"]} & {"bin", "pt", "py", "*"}


def test_a_name_that_the_hub_does_not_know_is_also_said_to_be_no_folder_here(hub):
    hub["answer"] = OSError("offline")
    with pytest.raises(Refusal, match="there is no folder someone/something here: check the name and the network"):
        model_folder("someone/something")


def test_a_gguf_is_refused_with_what_to_give_instead(tmp_path, hub):
    file = tmp_path / "small-Q4_K_M.gguf"
    file.touch()
    for name, what in ((file, "is a file, and a model is a folder"), (tmp_path, "has its weights as a GGUF alone")):
        with pytest.raises(Refusal, match=f"{what}: a GGUF is not read, give the folder or hub name of the model that"):
            model_folder(str(name))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Refusal, match="has its weights as a GGUF alone"):
        model_folder(str(tmp_path))
    assert not hub


def test_a_gguf_beside_safetensors_is_passed_over(folder):
    (folder / "model.gguf").touch()
    assert model_folder(str(folder)) == folder


def test_progress_is_reported(hub, folder):
    hub["answer"], heard = folder, []
    model_folder("someone/something", say=heard.append)
    assert heard == ["looking for someone/something on the Hugging Face hub"]


def test_the_set_up_command_says_a_refusal_in_one_line_and_exits_with_2(capsys):
    assert locate.main(["./nowhere"]) == 2
    assert capsys.readouterr().err.startswith("there is no folder './nowhere'")
