"""Displays for notebooks: values drawn as HTML or as figures, returned and never printed.

`strip`, `tokens`, `round`, `draft`, `tree`, `lattice`, `table` and `source` draw values of the library, `measured` the
rows of finished runs; `rounds`, `sources`, `entropy` and, for a stack of drafters, `nested_rounds` are figures along a
decode, `lattice_map` one of paths through a lattice, and `paths` the same after a search; `words` makes a toy session
from plain text, `toy_model` a language model; `check` states a claim and raises if it is false, `finding` says whether
a statement holds for the data at hand, `conclusion` answers the title of a notebook; `stack` puts several displays
below one another; `spans` draws an answer round by round, `gauge` named values on one line, and `settings` both for
settings replayed on one answer; `race` draws the answers of a race side by side, and `race_controls` starts one on the
reader's own prompt.
`names` is any callable from a token id to its text, such as a tokenizer's decode.
"""

from specdec_lib.show.cells import check, finding, lattice, lattice_map, measured, source, table
from specdec_lib.show.hierarchy import nested_rounds
from specdec_lib.show.html import Html, Stack, conclusion, stack, text
from specdec_lib.show.paths import paths
from specdec_lib.show.race import race
from specdec_lib.show.race_controls import race_controls
from specdec_lib.show.spans import gauge, settings, spans
from specdec_lib.show.strips import draft, round, strip, tokens, tree
from specdec_lib.show.timeline import entropy, rounds, sources
from specdec_lib.show.toy_text import Vocabulary, Word, toy_model, words

__all__ = ["Html", "Stack", "Vocabulary", "Word", "check", "conclusion", "draft", "entropy", "finding", "gauge",
           "lattice", "lattice_map", "measured", "nested_rounds", "paths", "race", "race_controls", "round", "rounds",
           "settings", "source", "sources", "spans", "stack", "strip", "table", "text", "tokens", "toy_model", "tree",
           "words"]
