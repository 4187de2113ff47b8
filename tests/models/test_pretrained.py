"""No code of a model's folder runs, whatever the folder asks for and whatever a person answers on the terminal."""

import ast
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

import specdec_lib
from specdec_lib.models.pretrained import pretrained
from specdec_lib.types import Refusal

PACKAGE = Path(specdec_lib.__file__).parent
CODE = """
from pathlib import Path
Path({mark!r}).touch()
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

class Config(LlamaConfig):
    model_type = "homemade"

class Model(LlamaForCausalLM):
    config_class = Config

class Words(PreTrainedTokenizerFast):
    pass

def generate(model, *given, **options):
    return given
"""
WAYS_IN = """
import sys
import torch
from specdec_lib import cli
from specdec_lib.bench.peers import load_peers
from specdec_lib.types import Refusal

for folder in sys.argv[1:]:
    print("code", cli.run(["generate", "--target", folder, "--device", "cpu", "--max-new-tokens", "2", "a"]))
    try:
        [peer] = load_peers(("hf-generate",), folder, torch.float32, "cpu", frozenset())
        print("generated", len(peer((0, 1), 2).tokens))
    except (Refusal, ValueError):
        print("refused")
"""


def folder_with_code(path: Path, mark: Path, model_type: str, **tokenizer) -> Path:
    """A random model and its tokenizer, in a folder whose files name the code beside them."""
    from tokenizers import Tokenizer, models

    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "eos_token_id": None}                 # else one in four random models ends its answer at once
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, vocab_size=4)).save_pretrained(path)
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="a").save_pretrained(path)
    code = CODE.format(mark=str(mark))
    (path / "homemade.py").write_text(code)
    (path / "custom_generate").mkdir()
    (path / "custom_generate" / "generate.py").write_text(code)
    for name, more in (("config.json", {"model_type": model_type, "auto_map": {
                            "AutoConfig": "homemade.Config", "AutoModelForCausalLM": "homemade.Model"}}),
                       ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["homemade.Words", "homemade.Words"]},
                                                  **tokenizer})):
        (path / name).write_text(json.dumps({**json.loads((path / name).read_text()), **more}))
    return path


def test_no_code_of_a_folder_runs_though_yes_is_answered_on_a_terminal(tmp_path):
    marks = [tmp_path / "mark 0", tmp_path / "mark 1"]
    folders = [folder_with_code(tmp_path / "homemade", marks[0], "homemade", tokenizer_class="Words"),
               folder_with_code(tmp_path / "llama", marks[1], "llama", tokenizer_class="Words")]
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n" * 50)
    env = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", WAYS_IN, *map(str, folders)], stdin=theirs, capture_output=True,
                          text=True, env=env, timeout=300, check=False)
    os.close(ours)
    os.close(theirs)
    assert not [mark.name for mark in marks if mark.exists()], done.stderr
    assert done.stdout.splitlines() == ["code 2", "refused", "code 2", "generated 2"], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("place", ["attn_implementation", "_attn_implementation"])
def test_a_config_that_names_a_kernel_to_fetch_is_refused(tmp_path, place):
    folder = folder_with_code(tmp_path / "kernel", tmp_path / "mark", "llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, place: "somebody/attention"}))
    with pytest.raises(Refusal, match=r"names code to fetch .*somebody/attention"):
        pretrained("AutoModelForCausalLM", folder)


def test_no_loading_bar_is_drawn(tmp_path, capfd):
    folder = folder_with_code(tmp_path / "plain", tmp_path / "mark", "llama")
    transformers.utils.logging.enable_progress_bar()
    capfd.readouterr()
    pretrained("AutoModelForCausalLM", folder)
    assert capfd.readouterr().err == ""


def test_transformers_reads_a_folder_in_one_place_only():
    calls = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.Attribute) and node.attr == "from_pretrained"]
    assert calls == ["models/pretrained.py"]
