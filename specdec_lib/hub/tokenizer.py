"""The tokenizer of a model folder: chat template, encoding, decoding as a stream, facts that rules need.

Reads a transformers folder; knows nothing about weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specdec_lib.cards import TokenizerFacts
from specdec_lib.hub.chat_settings import USUAL, ChatSettings
from specdec_lib.hub.chat_template import SYSTEM, History, as_messages, refuse_unread, written_by
from specdec_lib.models.llama.config import UnsupportedConfig, config_of
from specdec_lib.models.llama.weights import read_config
from specdec_lib.models.pretrained import pretrained
from specdec_lib.types import Refusal

HALF = "\ufffd"                                    # what decoding gives for a character that lacks bytes
BYTE = re.compile(r"<0x([0-9A-F]{2})>")            # how some vocabularies spell a single byte
DIGIT = re.compile("[0-9]")
FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
AUTO, PLAIN = "AutoTokenizer", "TokenizersBackend"          # classes of transformers


class Tokenizer:
    """The tokenizer of one model folder; `warn` is called once if the model has no chat template.

    `chat` holds for every conversation. Refusal where the chat template does not read one of its switches.
    """

    def __init__(self, folder: Path, warn: Callable[[str], None] = lambda line: None,
                 chat: ChatSettings = USUAL):
        self.folder = Path(folder)
        self.tokenizer = load_tokenizer(self.folder)
        self.facts = read_facts(self.folder, self.tokenizer)
        self.warn = warn
        self.warned = False
        self.chat = chat
        refuse_unread(chat.switches, self.tokenizer, self.folder.name)

    @property
    def has_template(self) -> bool:
        """Whether the model has a chat template; without one, turns are raw text, one a line."""
        return bool(self.tokenizer.chat_template)

    def encode_chat(self, history: History) -> tuple[int, ...]:
        """Ids of a conversation up to where the model's next answer begins. Refusal for an empty turn.

        A template that writes today's date gets the same `DATE` every day, so that prompts stay what they were.
        """
        if not self.has_template:
            self.warn_once()
            return self.encode("\n".join(message["content"] for message in self.messages(history)))
        try:
            written = self.written(history, add_generation_prompt=True)
        except Refusal:
            raise
        except Exception as error:                 # templates are programs and raise anything
            turns = "other turns" if self.chat.system is None else "other turns, leave --system out"
            raise Refusal(f"{self.folder.name} has a chat template that refuses this: {error}; give {turns}, or"
                          " another model") from error
        return self.some(self.plain([written])[0])

    def messages(self, history: History) -> list[dict[str, str]]:
        """Role and content of every turn. Raises as `as_messages` does.

        The system turn of these settings comes first, unless the conversation has one of its own.
        """
        said, system = as_messages(history), self.chat.system
        return said if system is None or said[0]["role"] == SYSTEM else [{"role": SYSTEM, "content": system}, *said]

    def written(self, history: History, add_generation_prompt: bool = False) -> str:
        """The conversation as the chat template writes it. Raises Refusal, and whatever the template raises."""
        return written_by(self.tokenizer, self.messages(history), self.chat, add_generation_prompt)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of raw text, with the begin token where the tokenizer adds one."""
        return self.some(self.plain([text], add_special_tokens=True)[0])

    def some(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """These ids; Refusal where there are none."""
        if not ids:
            raise Refusal(f"the tokenizer of {self.folder.name} has no token for any part of this text: give another"
                          " one, or another model")
        return ids

    def plain(self, texts: list[str], add_special_tokens: bool = False) -> list[tuple[int, ...]]:
        """Ids of several texts, which are encoded at the same time; no begin and end tokens unless asked for.

        Refusal for a text that the tokenizer cannot write, and for a token that the model has no embedding for.
        """
        try:
            found = self.tokenizer(texts, add_special_tokens=add_special_tokens, verbose=False,
                                   return_attention_mask=False, return_token_type_ids=False)["input_ids"]
        except Exception as error:                 # tokenizers raise plain exceptions
            raise Refusal(f"the tokenizer of {self.folder.name} cannot write this text ({error}): give another one, or"
                          " another model") from error
        return [self.known(tuple(ids)) for ids in found]

    def known(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """These ids; Refusal where the model has no embedding for one."""
        most = self.facts.vocab
        if ids and most is not None and max(ids) >= most:
            raise Refusal(f"the tokenizer of {self.folder.name} writes this text with token {max(ids)} and the model"
                          f" knows 0 to {most - 1}: it is another model's tokenizer, fetch the model again")
        return ids

    def warn_once(self) -> None:
        if not self.warned:
            self.warned = True
            self.warn(f"{self.folder.name} has no chat template: the prompt is given as raw text")

    def decode(self, ids: Iterable[int], control: bool = False) -> str:
        """Text of ids with all its blanks; control tokens only with `control`."""
        return self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=not control,
                                     clean_up_tokenization_spaces=False)

    def name(self, token: int) -> str:
        """The text of one token, control tokens by their name."""
        return text_of(token, partial(self.decode, control=True))

    def stream(self) -> TextStream:
        """A new stream that decodes token by token."""
        return TextStream(self.decode)


def text_of(token: int, decode: Callable[[Sequence[int]], str]) -> str:
    """The text of one token within others: at the start of a text some tokenizers drop its blank."""
    once, twice = decode((token,)), decode((token, token))
    return once if HALF in once or not twice.startswith(once) else twice[len(once):]


class TextStream:
    """Decodes ids as they arrive; a character spread over several tokens is held back until it is complete."""

    def __init__(self, decode: Callable[[Sequence[int]], str]):
        self.decode = decode
        self.before: list[int] = []                # already shown; kept because blanks depend on the neighbour
        self.waiting: list[int] = []

    def push(self, ids: Iterable[int]) -> str:
        """The text that these ids add to what can be shown."""
        return "".join(self.step(token) for token in ids)

    def step(self, token: int) -> str:
        self.waiting.append(int(token))
        new = self.pending()
        if new.endswith(HALF):
            return ""
        self.before = self.waiting if new else self.before + self.waiting      # control tokens show nothing
        self.waiting = []
        return new

    def pending(self) -> str:
        return self.decode(self.before + self.waiting)[len(self.decode(self.before)):]

    def finish(self) -> str:
        """The text that is still held back, incomplete or not."""
        new = self.pending()
        self.before, self.waiting = [], []
        return new


def load_tokenizer(folder: Path) -> Any:
    """transformers' tokenizer of a folder; Refusal where it cannot be read."""
    try:
        kind = reader_of(folder)
        return pretrained(kind, folder, **({"mistral_format": False} if kind == AUTO else {}))     # not mistral-common
    except Refusal:
        raise
    except Exception as error:                     # a missing or broken file, or a tokenizer that needs its own code
        if needs_sentencepiece(folder):
            raise Refusal(f"the tokenizer of {folder} is a tokenizer.model, which is read with SentencePiece:"
                          " `pip install sentencepiece protobuf`") from error
        if (folder / "config.json").exists() and any((folder / name).is_file() for name in FILES):
            refuse_broken_config(folder)           # transformers reads it to find the tokenizer
        raise Refusal(f"{folder} holds no tokenizer that transformers can read without running code from the "
                      f"model, or its config.json is broken ({type(error).__name__}): copy or download it again"
                      ) from error


def needs_sentencepiece(folder: Path) -> bool:
    """Whether what reads this folder's tokenizer is not installed."""
    alone = (folder / "tokenizer.model").is_file() and not (folder / "tokenizer.json").is_file()
    return alone and find_spec("sentencepiece") is None


def reader_of(folder: Path) -> str:
    """transformers' class that reads this folder's tokenizer.

    `AutoTokenizer` imports seconds of other models' code to find it; for a Llama whose files name the plain class there
    is nothing to find.
    """
    try:
        model, named = (read_json(folder / name) for name in ("config.json", "tokenizer_config.json"))
    except Refusal:
        return AUTO                                # which says what is wrong
    plain = model.get("model_type") == "llama" and named.get("tokenizer_class") == PLAIN
    return AUTO if "auto_map" in {*model, *named} or not plain else PLAIN


def refuse_broken_config(folder: Path) -> None:
    """Raises Refusal where the config is one of ours and describes no model."""
    with suppress(UnsupportedConfig):
        config_of(read_config(folder))


def read_facts(folder: Path, tokenizer: Any) -> TokenizerFacts:
    """End, control, digit and fence tokens, vocabulary context, from the folder and its tokenizer."""
    config = read_json(folder / "config.json")
    config = config["text_config"] if isinstance(config.get("text_config"), dict) else config
    generation = read_json(folder / "generation_config.json")
    vocab = config.get("vocab_size") or len(tokenizer)
    end = end_tokens(generation.get("eos_token_id", config.get("eos_token_id")))
    refuse_unknown_end(end, vocab, folder)
    return token_facts(tokenizer, end | end_tokens(tokenizer.eos_token_id), vocab,
                       config.get("max_position_embeddings"))


def token_facts(tokenizer: Any, end: frozenset[int], vocab: int, context: int | None) -> TokenizerFacts:
    """Control, digit and fence tokens of transformers' tokenizer, beside what the model's config says."""
    pieces = {token: decoded_piece(piece) for piece, token in tokenizer.get_vocab().items()}
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    control = frozenset(special | set(tokenizer.all_special_ids))
    return TokenizerFacts(
        end=end,
        control=control,
        digit=frozenset(t for t, piece in pieces.items() if t not in control and DIGIT.search(piece)),
        fence=frozenset(t for t, piece in pieces.items() if t not in control and "```" in piece),
        vocab=vocab,
        context=context,
    )


def decoded_piece(piece: str) -> str:
    """A vocabulary entry; the spelling of a single byte becomes its character."""
    byte = BYTE.fullmatch(piece)
    return chr(int(byte[1], 16)) if byte else piece


def refuse_unknown_end(end: frozenset, vocab: object, folder: Path) -> None:
    """Raises Refusal for an end token that the model cannot emit: no answer would end there."""
    strange = [token for token in end if type(token) is not int or isinstance(vocab, int) and not 0 <= token < vocab]
    if strange:
        raise Refusal(f"{folder} names the end token {strange[0]!r} and its vocabulary has {vocab} tokens, counted from"
                      " 0: correct eos_token_id in its generation_config.json or config.json")


def end_tokens(value: int | list[int] | None) -> frozenset[int]:
    """End tokens as a set; configurations give one, several, or none."""
    return frozenset() if value is None else frozenset(map(as_token, value if isinstance(value, list) else [value]))


def as_token(value: Any) -> Any:
    """The value, or its text where a set cannot hold it."""
    return value if isinstance(value, int) else str(value)


def read_json(path: Path) -> dict:
    """A configuration file, empty if it is missing; Refusal for one that is not JSON."""
    if not path.is_file():
        return {}
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(f"{path} is not readable JSON: copy or download it again") from error
    if not isinstance(read, dict):
        raise Refusal(f"{path} holds no JSON object: copy or download it again")
    return read
