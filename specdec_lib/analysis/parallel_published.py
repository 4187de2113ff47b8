"""What the papers on parallel schedules claim, with their prices; none of it was measured here.

Targets, drafters and hardware differ from ours and from each other, and so do the baselines: these figures share no
column with our measurements, and are not ranked against each other. `read` says how a figure reached us: "abstract",
"code" (the released code or its README), or "second hand" (somebody else's notes on the paper).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ScheduleClaim(NamedTuple):
    """A speed-up as claimed, what it is relative to, where it stands and how we read it."""

    claim: str
    baseline: str
    source: str
    read: str


class PaperPrice(NamedTuple):
    """A pair of models: draft steps in one forward of the target, and where that figure stands."""

    ratio: float
    source: str
    read: str


PUBLISHED: Mapping[str, ScheduleClaim] = {
    "pearl": ScheduleClaim("4.43 times, and 1.50 times", "plain decoding, and serial speculation",
                           "PEARL (Liu et al. 2024, arXiv 2408.11850), ICLR version", "abstract"),
    "specbranch": ScheduleClaim("1.8 to 4.5 times", "plain decoding", "SpecBranch (arXiv 2506.01979)", "second hand"),
    "ppsd": ScheduleClaim("2.01 to 3.81 times", "plain decoding; its devices are not counted, reviewers say",
                          "PPSD (arXiv 2509.19368)",
                          "second hand"),
    "duodecoding": ScheduleClaim("up to 2.61 times", "plain decoding", "DuoDecoding (Lv et al. 2025, arXiv 2503.00784)",
                                 "abstract"),
    "double": ScheduleClaim("5.3 times with LLaMA3.3-70B, 2.8 times with Qwen3-32B", "plain decoding",
                            "Double (arXiv 2601.05524)", "abstract"),
    "hierarchical": ScheduleClaim("up to 1.2 times", "serial speculation with the best single drafter",
                                  "Fast Inference via Hierarchical Speculative Decoding (arXiv 2510.19705)",
                                  "abstract")}

SCRIPTED = "draft length of its scripts; that it equals the speed ratio is our inference"
BUDGETED = "draft budget of its scripts; that it equals the speed ratio is our inference"
PRICES: Mapping[str, PaperPrice] = {
    "PEARL, 6.7B/33B": PaperPrice(3, SCRIPTED, "code"),
    "PEARL, 1.3B/33B": PaperPrice(4, SCRIPTED, "code"),
    "PEARL, 7B/70B": PaperPrice(5, SCRIPTED, "code"),
    "SpecBranch, 68M/7B": PaperPrice(7, "draft length at which drafting takes as long as a forward", "second hand"),
    "DuoDecoding, Vicuna 7B": PaperPrice(16, BUDGETED, "code"),
    "DuoDecoding, Llama 2 7B": PaperPrice(24, BUDGETED, "code")}
EXIT_SHARE = 0.25                                  # of the layers before PPSD's exit: inferred, not printed
