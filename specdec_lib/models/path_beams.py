"""DiffuSpec's path search in one call of our own C code (`path_beams.c`); where nothing compiles, in numpy.

`narrow` and `search` of lattice.py define the result. They take some thirty operations of numpy a slot, each on a few
numbers, so nearly all of their time is that of the calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from operator import getitem
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from specdec_lib import lattice
from specdec_lib.lattice import SCORES, FoundPaths, PathRules, Proxy
from specdec_lib.models.llama.compiled import library
from specdec_lib.models.ngram import Ngram, last_two, refuse_outside
from specdec_lib.types import Lattice

SOURCE = Path(__file__).with_suffix(".c")
MOST = 64                                          # candidates of a slot, and beams, in the C code
ADDRESS, INT64, DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class OrderRecord(ctypes.Structure):
    """`Order` of the C code."""

    _fields_ = (("keys", ADDRESS), ("mass", ADDRESS), ("left", ADDRESS), ("count", INT64))


class TrigramRecord(ctypes.Structure):
    """`Trigram` of the C code."""

    _fields_ = (("unigram", ADDRESS), ("bigram", OrderRecord), ("trigram", OrderRecord), ("vocab", INT64),
                ("contexts", INT64))


class SearchRecord(ctypes.Structure):
    """`Search` of the C code."""

    _fields_ = (*((name, ADDRESS) for name in ("proxy", "ids", "ends", "logp")),
                *((name, INT64) for name in ("slots", "top", "end_count", "cap", "keep_end", "beam", "score")),
                ("last", INT64 * 2), ("mass", DOUBLE), ("weight", DOUBLE),
                *((name, ADDRESS) for name in ("kept", "statistics", "columns", "lengths", "scores")))


def find_paths(raw: Lattice, context: Sequence[int], end: frozenset[int], proxy: Proxy | None,
               rules: PathRules) -> FoundPaths:
    """The paths through the candidates of a lattice on the host in double precision, see lattice.py."""
    run = compiled_search()
    fits = max(rules.beam, *raw.ids.shape) <= MOST and is_sound(rules)
    if run is not None and fits and (proxy is None or isinstance(proxy, Ngram)):
        return found_in_c(run, raw, context, end, proxy, rules)
    return found_in_numpy(raw, context, end, proxy, rules)


def is_sound(rules: PathRules) -> bool:
    """Whether `narrow` and `search` take these rules; they say what is wrong with others."""
    return (rules.score in SCORES and 0 <= rules.weight <= 1 and 0 < rules.mass <= 1
            and min(rules.beam, rules.cap) >= 1)


def found_in_numpy(raw: Lattice, context: Sequence[int], end: frozenset[int], proxy: Proxy | None,
                   rules: PathRules) -> FoundPaths:
    """The same by the functions of lattice.py."""
    few = lattice.narrow(raw, rules.mass, rules.cap, end, rules.keep_end)
    paths = lattice.search(few, context, proxy, rules.weight, rules.beam, end, rules.score)
    return FoundPaths(paths, lattice.candidate_counts(few), lattice.slot_statistics(raw))


def found_in_c(run: Callable[[Any], int], raw: Lattice, context: Sequence[int], end: frozenset[int],
               proxy: Ngram | None, rules: PathRules) -> FoundPaths:
    """The same by the C code. ValueError for ids outside the trigram's vocabulary."""
    ids, logp = np.ascontiguousarray(raw.ids.numpy()), np.ascontiguousarray(raw.logp.numpy())
    last, (n, top), ends = last_two(context), ids.shape, np.array(sorted(end), dtype=np.int64)
    if proxy is not None:
        refuse_outside(ids, 0, proxy.vocab)
        refuse_outside(np.array(last), -1, proxy.vocab)
    kept, lengths = np.empty(n, dtype=np.int64), np.empty(rules.beam, dtype=np.int64)
    columns, slots, scores = np.empty((rules.beam, n), dtype=np.int64), np.empty((n, 3)), np.empty(rules.beam)
    count = run(ctypes.byref(SearchRecord(
        None if proxy is None else ctypes.addressof(record_of(proxy)), *map(address, (ids, ends, logp)), n, top,
        len(ends), rules.cap, rules.keep_end, rules.beam, SCORES.index(rules.score), (INT64 * 2)(*last), rules.mass,
        rules.weight, *map(address, (kept, slots, columns, lengths, scores)))))
    listed, tokens, chances = [each.tolist() for each in (lengths, scores, columns)], ids.tolist(), logp.tolist()
    paths = tuple(lattice.Path(tuple(map(getitem, tokens, path[:length])), score,
                               tuple(map(getitem, chances, path[:length])))
                  for length, score, path in islice(zip(*listed, strict=True), count))
    counts = tuple(k for k in kept.tolist() if k)          # none behind the last slot
    return FoundPaths(paths, counts, tuple(map(tuple, slots.tolist())))


def address(array: np.ndarray) -> int:
    """Where the numbers of an array begin."""
    return array.ctypes.data


@cache
def compiled_search() -> Callable[[Any], int] | None:
    """The C function; None where nothing compiles."""
    code = library(SOURCE)
    if code is None:
        return None
    code.search_paths.argtypes, code.search_paths.restype = [ADDRESS], INT64
    return code.search_paths


RECORDS: WeakKeyDictionary[Ngram, tuple[TrigramRecord, list]] = WeakKeyDictionary()


def record_of(proxy: Ngram) -> TrigramRecord:
    """The arrays of this trigram for the C code, made once."""
    if proxy not in RECORDS:
        orders = [(order.keys, *(each.astype(np.float64) for each in (order.mass, order.left)))
                  for order in (proxy.bigram, proxy.trigram)]
        records = [OrderRecord(*map(address, arrays), len(arrays[1])) for arrays in orders]
        record = TrigramRecord(address(proxy.unigram), *records, proxy.vocab, len(proxy.trigram.left) - 1)
        RECORDS[proxy] = record, orders            # which own the memory
    return RECORDS[proxy][0]
