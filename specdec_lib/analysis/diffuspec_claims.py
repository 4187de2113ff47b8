"""DiffuSpec's claims compared with a run of ours: for each the published numbers, our ratio, and whether it holds.

The claims concern the paper's pair of models. Ours is another pair, so a line says whether a claim holds *here* and
does not test the paper. Verdicts use the paired interval alone. Claims whose methods a run lacks are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from specdec_lib.analysis import diffuspec_ablation, diffuspec_published
from specdec_lib.analysis.bench_report import Report, plain_part
from specdec_lib.analysis.diffuspec_ablation import PRINTED, Pair
from specdec_lib.analysis.diffuspec_published import (
    ABLATION,
    BOTH,
    CONTROLLER,
    NEITHER,
    SEARCH,
    published_speedup,
    published_speedup_at_best,
)
from specdec_lib.analysis.report_text import times_text

HOLDS = {"faster": "yes", "slower": "no, the opposite", "not told apart": "not told apart"}
LOOKED_UP = "sam+token-recycling"                  # our closest method to the paper's SAMD
DRAFTING = ("diffusion-draft", "diffuspec", "diffuspec-tree", "specdiff", "specdiff2")


class Claim(NamedTuple):
    """A claim of the paper and two methods of ours; it holds if the second one wins, in speed or in tokens."""

    said: str
    pair: Pair
    tokens: bool = False
    family: str | None = None


def drafts_with_diffusion_lm(spec: str) -> bool:
    """Whether the diffusion model that drafts is `diffusion-lm`, aligned or not."""
    name, values = plain_part(spec) or ("", {})
    usual = "diffusion-lm" if name in DRAFTING else None
    return values.get("drafter", usual) == "diffusion-lm"


def testable_claims(report: Report) -> list[Claim]:
    """The claims that this run can test."""
    held = diffuspec_ablation.specs_by_cell(report.entries)
    neither, search, controller, both = (held.get(one, "") for one in (NEITHER, SEARCH, CONTROLLER, BOTH))
    a, b, c, d = (ABLATION[one] for one in (NEITHER, SEARCH, CONTROLLER, BOTH))
    per_task = dict(zip(diffuspec_published.TASKS,
                        zip(diffuspec_published.PER_TASK[BOTH], diffuspec_published.SAMD_PER_TASK, strict=True),
                        strict=True))
    two = diffuspec_published.STEPS_OF_DENOISING[2]
    asked = [
        Claim(f"the search increases the tokens of a round: {b.tokens} over {a.tokens}", (neither, search), True),
        Claim(f"the search is faster at a fixed length: {b.speed} over {a.speed}", (neither, search)),
        Claim(f"the search is faster with the controller: {d.speed} over {c.speed}", (controller, both)),
        Claim(f"the controller is faster without the search: {c.speed} over {a.speed}", (neither, controller)),
        Claim(f"the controller is faster with the search: {d.speed} over {b.speed}", (search, both)),
        Claim(f"the printed controller is faster with the search: {d.speed} over {diffuspec_published.FIXED[20].speed}",
              (search, PRINTED)),
        Claim(f"both parts together are faster than neither: {d.speed} over {a.speed}", (neither, both)),
        Claim(f"it is faster than plain decoding: {d.speed}", ("ar", both)),
        Claim(f"one denoising step is faster than two: {d.speed} over about {two}", ("specdiff", neither)),
        Claim(f"it is faster than an autoregressive draft model: {d.speed} over {diffuspec_published.SPS.speed}",
              ("draft-model", both)),
        Claim(f"it is faster than copying (SAMD): {d.speed} over {diffuspec_published.SAMD.speed}", (LOOKED_UP, both)),
        *(Claim(f"copying is faster on {family}: {per_task[family][1]} over {per_task[family][0].speed}",
                (both, LOOKED_UP), family=family) for family in ("summarization", "rag"))]
    return [one for one in asked if set(one.pair) <= set(report.entries)
            and (one.family is None or one.family in report.families)]


def claim_table(report: Report) -> list[dict]:
    """The claims as a table, with ratios of speed or of tokens and their 95 % intervals."""
    out = []
    for one in testable_claims(report):
        ratio_of = diffuspec_ablation.tokens_of_pair if one.tokens else diffuspec_ablation.speed_of_pair
        step = ratio_of(report, one.pair, one.family)
        out.append({"claim (7B drafting for 32B, as published)": one.said,
                    "measured here": times_text(step.ratio, step.interval),
                    "does it hold here": HOLDS.get(step.verdict, step.verdict),
                    "a round, here": diffuspec_ablation.pair_sentence(report, one.pair, one.family)})
    return out + price_prediction(report)


def price_prediction(report: Report) -> list[dict]:
    """The claim that the search takes about 1 % of a round, compared with its share of a round here."""
    both = diffuspec_ablation.specs_by_cell(report.entries).get(BOTH)
    if both is None or diffuspec_ablation.search_ms(report) is None:
        return []
    parts = diffuspec_ablation.round_ms(report, both)
    share = parts["search"] / sum(parts.values())
    theirs = diffuspec_published.DIFFUSPEC_ROUND.search / diffuspec_published.DIFFUSPEC_ROUND.whole
    holds = "yes, without an interval" if share < .02 else "no, without an interval"
    return [{"claim (7B drafting for 32B, as published)": f"the search is about 1 % of a round ({theirs:.1%} in Figure"
             " 6)", "measured here": f"{share:.1%}",
             "does it hold here": "not told: below zero, so less than its noise" if share < 0 else holds,
             "a round, here": f"{parts['search']:.1f} ms of {sum(parts.values()):.1f} ms"}]


def prediction_table(report: Report) -> list[dict]:
    """The speed-up predicted for the paper's pair from the tokens per forward of each diffusion drafter here."""
    out = []
    for spec in report.entries:
        name, values = plain_part(spec) or ("", {})
        if name in DRAFTING or drafts_with_diffusion_lm(spec):
            tokens = report.entries[spec]["tokens_per_target_forward"]
            forwards = values.get("steps", 2 if name == "specdiff" else 1)
            searched = name.startswith("diffuspec") and values.get("weight") != 1
            out.append({"method": diffuspec_ablation.method_label(spec), "tokens per forward, measured here": tokens,
                        "forwards of the drafter": forwards,
                        "predicted for 7B + 32B": published_speedup(tokens, forwards, searched),
                        "predicted, verification as cheap as one step": published_speedup_at_best(tokens, forwards,
                                                                                                  searched)})
    return out
