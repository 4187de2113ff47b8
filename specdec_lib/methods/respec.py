"""ReSpec, strict: retrieve from several scored positions while the target's entropy is low, else use EAGLE-2's tree.

Source: ReSpec (arXiv 2511.01282): entropy-guided trigger, feedback-driven candidates, source-aware verification. Here
both sources are verified strictly, so it is lossless; `respec-relaxed` has a relaxed rule as in the paper. Of the
paper's setting `theta=1.5`, `look_back=3`, `shape="leave"`, `least=0.5` and `key="position"` are known at second hand.
With the tree of the EAGLE-2 that it is compared with, and our guesses for the rest (`analysis/paper_settings.py`), it
is `respec(theta=1.5, shape="leave", least=0.5, query=3, key="position", depth=6, width=10, nodes=59, copy=60,
longest=40, grow=0, price=0, counts=0)`. Greedy decoding sharpens that tree's scores as ours (`what/eagle2.py`), which
the paper does not do: recordings hold no other trees, and `sharpness=1` switches it off where a model decodes. Those
sizes are for a GPU; ours come from the cost curve. Cost: no draft forward in rounds that retrieve, else EAGLE-2's.

Ours beside the paper's: what followed the same tokens earlier in the text raises the head's scores (`counts`, see
`heads/text_counts.py`), and `least` is 0.6: without feedback yet that is a match of three tokens. Together they give 1
to 4 % more tokens per forward than `respec(least=0.3,counts=0)`, and no speed: on 60 prompts they are 0.98 times (0.96
to 0.99) as fast (`data/results/spec-bench.md` and `serial-methods.md`).

The threshold is 5 nats and not 1.5, so the trigger seldom decides: on the tuning prompts that is not told apart from
1.5 (1.00 times as fast, 0.97 to 1.02) nor from 3 (1.01, 0.98 to 1.03). Where the target's entropy is high the head
drafts badly, too; and where no candidate remains the head drafts anyway, which is the purpose of the trigger. Measured
in `data/results/tuning`.
"""

from __future__ import annotations

from typing import Any

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import wide_enough
from specdec_lib.types import Method


def make(kit: Kit, theta: float = 5.0, penalty: float = 1.0, look_back: int = 3, reading: str = "switch",
         key: str = "diagonal", query: int = 2, least: float = 0.6, shape: str = "likely", kept: int = 4,
         longest: int | None = None, copy: int | None = None, depth: int = 5, width: int = 4, nodes: int | None = None,
         grow: float = 0.25, price: float | None = None, remember: int = 0, lengthen: bool = False,
         sharpness: float | None = None, counts: float | None = None, further: float | None = None) -> Method:
    """Parameters of the trigger, the candidates and `eagle2`; see the three parts.

    Trigger: `theta`, `penalty`, `look_back`, `reading`. Candidates: `key`, `query`, `least`, `shape`, `kept`,
    `longest`, in trees of at most `copy` nodes. The others are `eagle2`'s, whose `least` is called `grow` here. Nodes
    default to twice what the cost curve allows and `copy` to twice as many again, since each must be worth its row;
    the width grows with the nodes as in `eagle2`. `remember` is for `respec+memory`, `lengthen` and `further` for
    `respec+lengthened`.
    """
    nodes = 2 * kit.nodes if nodes is None else nodes
    copy = 2 * nodes if copy is None else copy
    width = wide_enough(width, depth, nodes)
    when = kit.part("entropy-trigger", threshold=theta, penalty=penalty, look_back=look_back, reading=reading,
                    depth=copy if longest is None else longest, nodes=copy, model_depth=depth, model_width=width,
                    model_nodes=nodes, least=grow)
    candidates = {"key": key, "query": query, "least": least, "shape": shape, "kept": kept, "longest": longest,
                  "remember": remember}
    head: dict[str, Any] = {"price": price, "sharpness": sharpness, "counts": counts}
    if lengthen:
        head = {"part": "lengthened", "drafter": "eagle2", "given": head, "price": further}
    what = kit.part("switch", drafters={"feedback-retrieval": candidates, "eagle2": head})
    return Method(when, what, kit.part("match"))


CARD = Card("respec", idea="at low entropy retrieve from scored positions, else EAGLE-2",
            source="ReSpec, arXiv 2511.01282", make=make, notebook="40_respec", off_path=True,
            learns_across_prompts=True,            # with `remember`, which is off by default
            parts=("entropy-trigger", "feedback-retrieval", "eagle2", "switch", "match"))
