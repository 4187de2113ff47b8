"""Paths through the lattice of a diffusion drafter, in columns of candidates."""

from __future__ import annotations

from specdec_lib import figures
from specdec_lib.analysis.lattice_recall import token_ranks
from specdec_lib.analysis.lattice_search import SearchedLattice
from specdec_lib.show.html import in_cell
from specdec_lib.show.toy_text import Names, naming

SHOWN = 16                                         # candidates of a slot that are drawn: all that are recorded


def paths(found: SearchedLattice, names: Names | None = None, title: str | None = None):
    """The candidates of every slot, those that the search may use marked, with the argmax, searched and true paths."""
    name, ids = naming(names, ()), found.raw.ids[:, :SHOWN].tolist()
    words = [[in_cell(name(token)) for token in row] for row in ids]
    best, kept = found.accepted
    drawn = {"argmax": token_ranks(ids, found.best), "searched": token_ranks(ids, found.searched)}
    return figures.lattice(words, found.raw.logp[:, :SHOWN].tolist(), drawn, token_ranks(ids, found.came),
                           title=title or f"The target accepts {kept} of {len(found.searched)} searched tokens, "
                           f"{best} of {len(found.best)} argmax tokens", kept=[min(n, SHOWN) for n in found.kept])
