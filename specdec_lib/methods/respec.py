"""ReSpec, strict: retrieve from several scored places while the target is sure, else ask EAGLE-2's tree.

Source: ReSpec (arXiv 2511.01282): entropy-guided trigger, feedback-driven candidates, source-aware verification. Here
both sources are verified strictly, so it is lossless; `respec-relaxed` is the paper's spirit. The literal sizes are
`respec(nodes=60, longest=40, key="position")`, a GPU's; ours come from the cost curve.
"""

from __future__ import annotations

from specdec_lib.types import Card, Kit, Method


def make(kit: Kit, theta: float = 1.5, penalty: float = 1.0, look_back: int = 3, reading: str = "switch",
         key: str = "diagonal", longest: int | None = None, most: int = 64, depth: int = 5, width: int = 4,
         nodes: int | None = None) -> Method:
    """`theta`, `penalty`, `look_back` and `reading` are the trigger's, `key`, `longest` and `most` the candidates'.

    `depth` and `width` are those of the tree that the head drafts; nodes default to what the cost curve allows.
    """
    when = kit.part("entropy-trigger", threshold=theta, penalty=penalty, look_back=look_back, reading=reading,
                    nodes=nodes, depth=longest, model_depth=depth, model_width=width)
    places = {"key": key, "longest": longest, "most": most}
    what = kit.part("switch", drafters={"feedback-retrieval": places, "eagle2": {}})
    return Method(when, what, kit.part("match"))


CARD = Card("respec", idea="retrieve while the target is sure, from places that proved right, else EAGLE-2",
            source="ReSpec, arXiv 2511.01282", make=make, notebook="40_respec", off_path=True,
            parts=("entropy-trigger", "feedback-retrieval", "eagle2", "switch", "match"))
