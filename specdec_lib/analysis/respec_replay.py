"""Settings of ReSpec and its rival replayed on one recorded answer: counted drafts, predicted seconds.

Drafts are exact up to the recorded sizes (`AnswerReplays.exact`); seconds come from a cost curve. A replay takes
a few hundredths of a second, so sliders call it directly. The prediction charges each level of the head's tree `level`
seconds, as `replay_method.predicted_rates` does.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from specdec_lib import catalog, measure
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.paper_settings import RESPEC, KnownValue, paper_setting, paper_spec
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.by_name import ByName
from specdec_lib.checkpoints import checkpoint_files
from specdec_lib.cost.curves import CostCurve
from specdec_lib.models.ngram import Ngram
from specdec_lib.models.replay import Recording
from specdec_lib.recordings.folder import by_family
from specdec_lib.recordings.replay_method import AS_RECORDED, STAND_INS, predicted_rates, replay_method
from specdec_lib.specs import PartSpec, parse_part, write_part
from specdec_lib.types import Session

KNOBS = ("theta", "penalty", "least", "kept")      # of respec that the sliders move
SAM_THRESHOLD = 5                                  # tokens that must match in SAM-Decoding as published
HERE, PAPER, ALONE = "these sliders", "respec(paper)", "trigger alone"
ALONE_SPEC = "sam+eagle2+trigger(theta=1.5,match=1)"   # the paper's threshold in the place of the match length


class ReplayedSetting(NamedTuple):
    """One setting on one answer: counted tokens per forward and predicted speed over plain decoding."""

    name: str
    spec: str
    session: Session
    tokens: float                                  # per forward of the target
    speed: float                                   # times plain decoding, predicted


class Costs(NamedTuple):
    """What a prediction needs: seconds of a forward by width, and seconds of a level of the head's tree."""

    curve: CostCurve
    level: float


class AnswerReplays:
    """Settings replayed on one answer; a spec is decoded once. `shelf` holds checkpoints that run live: a trigram."""

    def __init__(self, recording: Recording, costs: Costs, shelf: Mapping | None = None):
        self.recording, self.costs, self.shelf = recording, costs, shelf
        self._sessions: dict[str, Session] = {}
        self._limits: dict[str, set[str]] = {}

    def session(self, spec: str) -> Session:
        """The answer as this spec would have decoded it."""
        if spec not in self._sessions:
            limits = self._limits.setdefault(spec, set())
            self._sessions[spec] = replay_method(spec, self.recording, self.costs.curve, self.shelf, limits)
        return self._sessions[spec]

    def exact(self, spec: str) -> bool:
        """Whether every draft is the live one: each drafter was recorded, at the sizes that it was asked for."""
        self.session(spec)
        return not self._limits[spec]

    def setting(self, name: str, spec: str) -> ReplayedSetting:
        """This spec under a name, with its rates."""
        rates = predicted_rates([self.session(spec)], self.costs.curve, self.costs.level)
        return ReplayedSetting(name, spec, self.session(spec), rates["tokens per forward"] or 0.0,
                               rates["predicted speed"] or 0.0)

    def respec(self, match: int = 2, **values) -> tuple[ReplayedSetting, ...]:
        """`respec` with these parameters, our defaults, the paper's setting as far as known, the rival at `match`.

        Nothing is counted in any of them: see `replayable`.
        """
        asked = {HERE: respec_spec(**values), "ours": respec_spec(), PAPER: paper_spec("respec"),
                 "rival": rival_spec(match)}
        return tuple(self.setting(name, spec) for name, spec in asked.items())


def answer_replays(recordings: Mapping[str, Recording], costs: Costs) -> ByName[AnswerReplays]:
    """The recordings by family, ready to be replayed, with the shipped trigram."""
    shelf = {"ngram": Ngram.load(checkpoint_files.SHIPPED / "ngram" / "model.safetensors")}
    return by_family({family: AnswerReplays(recording, costs, shelf) for family, recording in recordings.items()})


def our_values(method: str = "respec") -> dict[str, Any]:
    """The defaults of a method's parameters, by name."""
    words = inspect.signature(catalog.methods()[method].make).parameters.values()
    return {one.name: one.default for one in words if one.default is not inspect.Parameter.empty}


def respec_spec(**values) -> str:
    """`respec` with these parameters, which counts nothing."""
    return write_part(PartSpec("respec", values | {"counts": 0.0}))


def rival_spec(match: int) -> str:
    """SAM-Decoding with EAGLE-2, which copies after a match of at least `match` tokens."""
    return write_part(PartSpec("sam+eagle2", {"threshold": match}))


def settings_table(found: Sequence[ReplayedSetting], match: int, values: Mapping[str, Any]) -> list[dict]:
    """The four settings of `AnswerReplays.respec` as rows: values of the sliders, tokens per forward, speed."""
    ours, paper = our_values(), {name: _known(known) for name, known in RESPEC.items()}
    by_name = {HERE: dict(values), "ours": ours, PAPER: paper, "rival": {}}
    return [{"setting": one.name} | {name: _written(by_name[one.name].get(name)) for name in KNOBS}
            | {"match": f"{match}" if one.name == "rival" else "–", "tokens per forward": one.tokens,
               "predicted speed": one.speed} for one in found]


def ladder_rows(report: Report, steps: Mapping[str, str], replays: Sequence[AnswerReplays]) -> list[dict]:
    """Every step of the ablation, the trigger without a match length, the paper's setting, the run's other methods.

    Measured where the run holds them; all but the last are replayed on the answers, as far as `replayable` says.
    """
    papers = {PAPER: paper_spec("respec")}
    asked = {**steps, ALONE: ALONE_SPEC, **papers}
    measured = {paper_setting(spec) or spec: spec for spec in report.entries}
    others = {name: spec for name, spec in measured.items() if not {name, spec} & {*asked, *asked.values()}}
    rows = []
    for name, spec in {**asked, **others}.items():
        entry = report.entries.get(measured.get(name, spec), {})
        replayed = replays if name in asked and replayable(spec) else ()
        tokens, speed = pooled_rates(spec, replayed)
        kind = "none" if not replayed else "exact" if all(one.exact(spec) for one in replayed) else "approximate"
        rows.append({"ablation step": name, "method": name if name in papers else spec,
                     "lossless": "yes" if catalog.card_of(spec).lossless else "no",
                     "measured speed": entry.get("speedup"), "95 % interval": interval_text(entry.get("speedup_ci")),
                     "replay": kind, "tokens per forward (replayed)": tokens, "speed (predicted)": speed})
    return rows


def replayable(spec: str) -> bool:
    """Whether a recording can be replayed: not for a lossy method, nor for Token Recycling.

    That learns from rejected tokens. Nor where counts of the text join the head's scores, or its parameters are others
    than those that it was recorded with; nor for blocks that are cut by the price of rows, and a drafter that another
    stands in for. `AnswerReplays.exact` says whether the drafts are exact.
    """
    values = parse_part(spec.split("@")[0]).values
    if any(name in spec for name in ("recycling", "block-diffusion", "specdiff2")) or any(
            values.get(name, known[0]) not in known for name, known in AS_RECORDED.items()):
        return False
    return catalog.card_of(spec).lossless and not counts_text(spec)


def counts_text(spec: str) -> bool:
    """Whether the head's scores of this method hold counts of the text."""
    name, values = parse_part(spec.split("@")[0])
    return values.get("counts", our_values(name).get("counts", 0.0)) != 0


def pooled_rates(spec: str, replays: Sequence[AnswerReplays]) -> tuple[float | None, float | None]:
    """Tokens per forward and predicted speed of a spec over all answers together."""
    if not replays:
        return None, None
    rates = predicted_rates([one.session(spec) for one in replays], replays[0].costs.curve, replays[0].costs.level)
    return rates["tokens per forward"], rates["predicted speed"]


def round_ends(session: Session, costs: Costs) -> list[tuple[float, int]]:
    """For each round the predicted seconds from the start and the tokens written when it ends."""
    rows = measure.rows(session)
    spent = [costs.curve(row.width) + costs.level * row.depth * (row.source in STAND_INS) for row in rows]
    return list(zip(accumulate(spent), accumulate(row.emitted for row in rows), strict=True))


def written_by(session: Session, costs: Costs, seconds: float) -> int:
    """Rounds that have ended after so many predicted seconds."""
    return sum(end <= seconds + 1e-12 for end, _ in round_ends(session, costs))


def _known(one: KnownValue) -> str:
    """A value of the paper's setting with its evidence."""
    return f"{_written(one.value)} ({one.evidence})"


def _written(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)
