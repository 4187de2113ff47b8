"""The vocabulary of a tokenizer, read from its files: some models have tokenizers in code of their own, never run here.

Dream is one: its vocabulary is Qwen2.5's with a few tokens added, in `vocab.json` and `tokenizer_config.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec_lib.hub.tokenizer import Tokenizer, load_tokenizer, read_json
from specdec_lib.types import Refusal


def token_pieces(folder: str | Path) -> dict[str, int]:
    """Every piece of a model folder's tokenizer with its token id. Refusal where its files do not tell."""
    folder = Path(folder)
    whole, config = read_json(folder / "tokenizer.json"), read_json(folder / "tokenizer_config.json")
    plain = whole.get("model", {}).get("vocab") or read_json(folder / "vocab.json")
    if isinstance(plain, list):                    # unigram: pieces with their scores, the index is the id
        plain = {word: token for token, (word, _) in enumerate(plain)}
    if not plain:
        return load_tokenizer(folder).get_vocab()
    added = {entry["content"]: int(token) for token, entry in config.get("added_tokens_decoder", {}).items()}
    listed = {entry["content"]: entry["id"] for entry in whole.get("added_tokens", ())}
    return {**plain, **read_json(folder / "added_tokens.json"), **added, **listed}


def fits_vocab(draft: int, target: int, tokenizer: Any) -> bool:
    """Whether a draft model of so many tokens reads all of transformers' tokenizer and drafts what the target knows.

    Padded vocabularies of one family may differ: those of smaller models are often the shorter ones.
    """
    return min(target, 1 + max(tokenizer.get_vocab().values())) <= draft <= target


def shared_tokens(target: Tokenizer, other: dict[str, int], name: str) -> frozenset[int]:
    """The tokens of `target` that the other tokenizer also has, under the same ids.

    Raises Refusal where an id or a piece differs there, or a piece is missing. The other one may have more pieces, and
    may lack some that were added to the target's later (`<tool_call>`).
    """
    mine, added = target.tokenizer.get_vocab(), target.tokenizer.get_added_vocab()
    meant = {token: piece for piece, token in other.items()}
    for piece, token in mine.items():
        fits = other.get(piece) == token or (piece in added and piece not in other)
        if not fits or meant.get(token, piece) != piece:
            raise Refusal(f"the diffusion model {name} has another tokenizer than the target: token {token} is"
                          f" {piece!r} here and {meant.get(token, 'nothing')!r} there, take one made for this target")
    return frozenset(token for piece, token in mine.items() if piece in other)
