"""A tiny random target with a vocabulary of its own: every token is a word, a few are control tokens."""

from types import SimpleNamespace

from specdec_lib.cards import TokenizerFacts
from specdec_lib.hub.chat_settings import USUAL, ChatSettings
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer

END, USER, ANSWER, BEGIN = 0, 1, 2, 3
NAMES = ("<end>", "<user>", "<answer>", "<begin>")
VOCAB = 32
SHAPE = LlamaConfig(layers=1, hidden=16, heads=2, kv_heads=1, head_dim=8, mlp=16, vocab=VOCAB, context=512)


def target(seed: int = 3) -> Transformer:
    return Transformer.random(SHAPE, seed=seed)


class Babble:
    """Stands in for `Text`: words w4 to w31, a template of user and answer marks; or none of it."""

    def __init__(self, template: str | None = "<user> {words} <end>", begin: int | None = BEGIN,
                 chat: ChatSettings = USUAL):
        self.template, self.has_template, self.chat = template, template is not None, chat
        self.facts = TokenizerFacts(end=frozenset([END]), control=frozenset(range(len(NAMES))), vocab=VOCAB)
        self.pieces = {name: i for i, name in enumerate(NAMES)} | {f"w{i}": i for i in range(len(NAMES), VOCAB)}
        self.tokenizer = SimpleNamespace(bos_token_id=begin, get_vocab=lambda: self.pieces, encode=self.ids)

    def ids(self, text, add_special_tokens=False):
        return [self.pieces.get(word, VOCAB - 1) for word in text.split()]

    def written(self, history):
        return self.template.format(words=history[0])

    def encode(self, text):
        return tuple(self.ids(text))

    def encode_chat(self, history):
        return (USER, *self.ids(history[-1]), END, ANSWER)

    def decode(self, ids, control=False):
        names = {token: piece for piece, token in self.pieces.items()}
        return " ".join(names[i] for i in ids if control or i not in self.facts.control)
