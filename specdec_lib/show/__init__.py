"""What the notebooks show: values drawn as HTML or as figures, returned and never printed.

`strip`, `round`, `draft`, `tree`, `lattice`, `table`, `source` draw what the library computes; `words` makes a toy
session from plain text, `toy_model` a language model; `check` states a claim and raises where it is false; `stack`
puts several things under one another.
Where tokens need names, `names` is any callable from a token id to its text, such as a tokenizer's decode.
"""

from specdec_lib.show.html import Html, stack, text
from specdec_lib.show.parts import check, lattice, source, table
from specdec_lib.show.strips import draft, round, strip, tree
from specdec_lib.show.words import Vocabulary, Word, toy_model, words

__all__ = ["Html", "Vocabulary", "Word", "check", "draft", "lattice", "round", "source", "stack", "strip", "table",
           "text", "toy_model", "tree", "words"]
