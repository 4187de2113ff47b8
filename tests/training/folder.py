"""A random target in a folder as transformers writes it, and a file of its own answers."""

import json
from itertools import product
from pathlib import Path

import torch

from specdec_lib.hub.load import load_lm
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.answer_files import read_answers
from specdec_lib.training.data.dataset import Dataset, make_dataset
from specdec_lib.training.data.examples import Example, is_held_out
from tests.training.lessons import answered

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ("<unk>", "<eos>", *LETTERS, "red", "green", "blue")
EVERY = [" ".join(words) for words in product(LETTERS, "klm", "rst")]
HELD, TRAIN = [p for p in EVERY if is_held_out(p)][:10], [p for p in EVERY if not is_held_out(p)][:36]
OPEN = HELD + TRAIN


def model_folder(path: Path, context: int = 512) -> Path:
    """Five random layers that say something else at every step, and a tokenizer that splits at blanks."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=5,
                                 num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=context,
                                 initializer_range=0.3, bos_token_id=None, eos_token_id=1)).save_pretrained(path)
    return save_tokenizer(path)


def save_tokenizer(path: Path) -> Path:
    """Saves a tokenizer of `WORDS` that splits at blanks; returns its folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>").save_pretrained(path)
    return path


def answered_target(folder: Path) -> tuple[Transformer, Tokenizer, Path, Dataset]:
    """In `folder`: a random target `tiny`, its tokenizer, the file of its answers, and these as a data set."""
    path = model_folder(folder / "tiny")
    target, text, data = Transformer.load(path), Tokenizer(path), answers_file(path, folder / "answers.jsonl")
    return target, text, data, make_dataset(target, text, read_answers(data, target.vocab), None)


def answers_file(folder: Path, path: Path, tokens: int = 12) -> Path:
    """Its greedy answers to all prompts of `OPEN`, a few of them held out, as JSON lines."""
    target, text = load_lm(folder, torch.float32, "cpu"), Tokenizer(folder)
    said = answered(target, [Example(text.encode_chat([prompt]), ()) for prompt in OPEN], tokens, text.facts.end)
    lines = [{"source": "even" if place % 2 else "odd", "temperature": 0.0, "prompt": prompt,
              "output": list(example.output)} for place, (prompt, example) in enumerate(zip(OPEN, said, strict=True))]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def other_answers(data: Path, path: Path) -> Path:
    """The file `data` with the first token of each answer replaced: as many answers, as long as they were."""
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "output": [2 + line["output"][0] % 20, *line["output"][1:]]}) + "\n"
                            for line in lines))
    return path
