"""A tiny random model in a folder, and the words of a bench on it."""

import json
from contextlib import contextmanager

import pytest
import torch

from specdec_lib import cli
from specdec_lib.bench import run
from specdec_lib.cost import curves

WORDS = ["<unk>", "<eos>", *"abcdefghijklmnopqrstuvwxyz", "red", "green", "blue"]
CURVE = curves.CostCurve((1, 5, 9), (8,), ((1.0, 1.2, 2.0),))


def model_folder(path, vocab=len(WORDS), words=WORDS, seed=0):
    """A folder as transformers writes it: two random layers and a tokenizer that splits at blanks."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(vocab_size=vocab, hidden_size=16, intermediate_size=32, num_hidden_layers=5,
                                 num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
                                 bos_token_id=None, eos_token_id=1)).save_pretrained(path)
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>").save_pretrained(path)
    return path


@pytest.fixture(scope="module", name="model")
def model_fixture(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(name="prompts")
def prompts_fixture(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"question_id": 1, "category": "qa", "turns": ["a b c a b"]},
             {"question_id": 2, "category": "writing", "turns": ["red green", "blue"], "reference": ["green", "blue"]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(name="curve")
def curve_fixture(tmp_path):
    CURVE.save(tmp_path / "curve.json")
    return str(tmp_path / "curve.json")


@pytest.fixture(name="bench")
def bench_fixture(model, prompts, curve, tmp_path):
    """Words of a bench that runs; more words are put behind them."""
    return ["bench", "--target", str(model), "--prompts", str(prompts), "--cost", curve, "--dtype", "float32",
            "--threads", "1", "--max-new-tokens", "8", "--device", "cpu", "--out", str(tmp_path / "out")]


def words_of_bench(model, folder, methods, *more, turns=("a b c a b",)):
    """Words of a bench of one short prompt a turn, with an empty shelf of its own; it writes into `folder`."""
    prompts, curve, shelf = folder / "prompts.jsonl", folder / "curve.json", folder / "shelf"
    prompts.write_text("".join(json.dumps({"question_id": place, "category": "qa", "turns": [turn]}) + "\n"
                               for place, turn in enumerate(turns, 1)))
    CURVE.save(curve)
    shelf.mkdir()
    return ["bench", "--methods", methods, "--target", str(model), "--prompts", str(prompts), "--cost", str(curve),
            "--dtype", "float32", "--threads", "1", "--max-new-tokens", "8", "--device", "cpu", "--out",
            str(folder / "out"), "--checkpoints", str(shelf), *map(str, more)]


@contextmanager
def interrupted():
    """Ctrl-C comes after the first prompt of every bench that is run inside."""
    real = run.run_prompt

    def interrupted_run(index, *more):
        if index == 1:
            raise KeyboardInterrupt
        return real(index, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "run_prompt", interrupted_run)
        yield


def refused(words, capsys) -> str:
    """The sentence on stderr of a command that ends with exit code 2."""
    assert cli.run([str(word) for word in words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("specdec: ")]
    assert len(lines) == 1
    assert "Traceback" not in lines[0]
    return lines[0]


def trained_for(folder, shelf, taps=(1, 3, 5)):
    """A shelf with an EAGLE head that nobody trained, made for the model in a folder."""
    from specdec_lib.checkpoints import checkpoint_files as shelves
    from specdec_lib.checkpoints.fingerprint import fingerprint
    from specdec_lib.hub.load import load
    from tests.worlds import random_eagle

    target, text = load(str(folder), torch.float32, "cpu")
    head = random_eagle(target.shape, taps, (2, 3, 4, 29))
    card = {"target": "tiny", "made": {"command": "none"}, "settings": {}, "measured": {}, "limits": ["Untrained."]}
    shelves.save_checkpoint(shelf, "eagle", head.state, head.meta, card, {}, target.weights, fingerprint(target, text))
    return shelf
