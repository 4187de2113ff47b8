"""The settings of two papers as far as they are known, written as specs, with the evidence for every value.

ReSpec (arXiv 2511.01282): we have read its abstract only. Values of its Algorithm 1 and of a figure come at second
hand, from a public re-implementation whose authors read the paper; the rest is ours. DiffuSpec (arXiv 2510.02358 v1):
read in full. A paper's setting is never one of ours: `paper_setting` recognises it however it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from specdec_lib.analysis.bench_report import plain_part
from specdec_lib.specs import PartSpec, write_part

PAPER, SECOND_HAND, OURS = "paper", "second hand", "ours"


class KnownValue(NamedTuple):
    """A parameter of a paper's setting: its value as far as it is known, and where it comes from."""

    value: Any
    evidence: str                                  # PAPER, SECOND_HAND or OURS
    remark: str


RESPEC: Mapping[str, KnownValue] = {
    "theta": KnownValue(1.5, SECOND_HAND, "threshold of Algorithm 1; read as nats, its logarithm is not known"),
    "look_back": KnownValue(3, SECOND_HAND, "look-back l of Algorithm 1"),
    "penalty": KnownValue(1.0, OURS, "the term lambda_e / k is second hand, its value is published nowhere"),
    "shape": KnownValue("leave", SECOND_HAND, "positions below the threshold of the score are dropped"),
    "least": KnownValue(0.5, SECOND_HAND, "threshold of the score, from a figure"),
    "key": KnownValue("position", SECOND_HAND, "a score for each match position, read literally"),
    "query": KnownValue(3, OURS, "tokens that must match; whether k* sets them is not known"),
    "depth": KnownValue(6, OURS, "the tree of the EAGLE-2 that it is compared with, its root's level included"),
    "width": KnownValue(10, OURS, "as wide as that tree"),
    "nodes": KnownValue(59, OURS, "as many nodes as that tree, whose 60 count the root"),
    "copy": KnownValue(60, OURS, "as many nodes for copies as for the tree"),
    "longest": KnownValue(40, OURS, "the copy length of the SAM-Decoding that it is compared with"),
    "grow": KnownValue(0, OURS, "the tree of EAGLE-2 grows without a limit on the path's probability"),
    "price": KnownValue(0, OURS, "the same for its nodes"),
    "counts": KnownValue(0, OURS, "counts of the text in the head's scores are our addition")}
DIFFUSPEC: Mapping[str, KnownValue] = {
    "rule": KnownValue("printed", PAPER, "Eqs. 9 to 11"),
    "shortest": KnownValue(20, PAPER, "k_min"), "longest": KnownValue(30, PAPER, "k_max"),
    "growth": KnownValue(10, PAPER, "delta"), "rate": KnownValue(0.5, PAPER, "rho"),
    "beam": KnownValue(3, PAPER, "B"), "mass": KnownValue(0.8, PAPER, "tau"), "cap": KnownValue(15, PAPER, "M_max"),
    "weight": KnownValue(0.5, PAPER, "lambda"), "score": KnownValue("sum", PAPER, "Eq. 8")}
SETTINGS = {"respec": RESPEC, "diffuspec": DIFFUSPEC}
RULE_UNKNOWN = "the relaxed rule of the paper is published nowhere we could read, so this row verifies strictly"


def paper_spec(method: str) -> str:
    """The spec of the paper's setting of `respec` or `diffuspec`, as far as it is known."""
    return write_part(PartSpec(method, {name: known.value for name, known in SETTINGS[method].items()}))


def paper_setting(spec: str) -> str | None:
    """`respec(paper)` or `diffuspec(paper)` if the spec is that setting, else None; defaults may be left out.

    What distinguishes a paper's setting from one of ours must be written: its shape of drafts, or its printed limits.
    """
    name, values = plain_part(spec) or ("", {})
    known = {key: one.value for key, one in SETTINGS.get(name, {}).items()}
    telling = {"respec": {"shape", "nodes", "longest"}, "diffuspec": {"shortest", "longest", "score"}}.get(name, set())
    same = all(key in known and known[key] == value for key, value in values.items())
    return f"{name}(paper)" if known and same and telling <= set(values) else None


def evidence_table(method: str, ours: Mapping[str, Any]) -> list[dict]:
    """A row for each parameter of the paper's setting: its value, where it comes from, and the value that we use."""
    return [{"parameter": name, "paper's setting": f"{known.value}", "evidence": known.evidence,
             "ours": "not fixed" if ours.get(name, 0) is None else f"{ours.get(name, '–')}", "remark": known.remark}
            for name, known in SETTINGS[method].items()]
