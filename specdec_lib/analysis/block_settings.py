"""Recorded runs of `specdec` as numbers: tokens per forward, acceptance and error rates of every setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix
from pathlib import Path
from typing import Any

from specdec_lib.recordings.block_runs import BlockSetting
from specdec_lib.seq2seq.alphabet import NAMES
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "g2p" / "settings.json"
Counts = Mapping[str, int]


@dataclass(frozen=True)
class BlockRuns:
    """The content of one file of recorded runs."""

    kept: Mapping[str, Any]

    @cached_property
    def by_setting(self) -> dict[BlockSetting | None, Mapping[str, Counts]]:
        """Totals by setting and kind of spelling; None is plain greedy decoding."""
        return {found: {kind: one[kind] for kind in self.kinds} for found, one in
                zip(self.settings, self.kept["runs"], strict=True)}

    @cached_property
    def settings(self) -> list[BlockSetting | None]:
        """The settings in the order in which they were run."""
        return [None if one["setting"] is None else BlockSetting(**one["setting"]) for one in self.kept["runs"]]

    @property
    def kinds(self) -> list[str]:
        return [name for name in self.kept["runs"][0] if name != "setting"]

    @property
    def examples(self) -> list[str]:
        """Texts whose rounds are kept."""
        return list(self.kept["examples"])

    def nearest(self, k: int, beta: int, tolerance: float) -> BlockSetting:
        """The recorded setting: for beta = 1 the one there is; Refusal where nobody recorded it."""
        for one in self.settings:
            if one is not None and (one.k, one.beta) == (k, beta) and (beta == 1 or one.tolerance == tolerance):
                return one
        raise Refusal(f"nobody recorded k = {k}, beta = {beta}, tolerance = {tolerance}: take values of the table")

    def rounds(self, text: str, setting: BlockSetting | None) -> list[tuple[list[int], list[int]]]:
        """(drafted ids, emitted ids) of each round of an example."""
        runs = self.kept["examples"][text]["runs"]
        return [(drafted, emitted) for drafted, emitted in runs[self.settings.index(setting)]]

    def rates(self, setting: BlockSetting | None, kind: str) -> dict[str, float | None]:
        """Tokens per forward, accepted share of drafted tokens, phoneme and word error rates."""
        return rates(self.by_setting[setting][kind])

    def beam(self, kind: str) -> dict[str, float | None]:
        """The same of beam search; a forward scores the whole beam."""
        return rates(self.kept["beam"][kind])


def gate_rows(runs: BlockRuns, kind: str, k: int) -> dict[str, dict[str, float | str]]:
    """Rates of greedy decoding, of every gate at this block length, and of beam search, by name, as a table's rows."""
    rows = {"greedy": runs.rates(None, kind)}
    for one in runs.settings:
        if one is not None and one.k == k:
            name = "strict (beta 1)" if one.beta == 1 else f"beta {one.beta}, {one.tolerance:g} nats (lossy)"
            rows[name] = runs.rates(one, kind)
    rows[f"beam search, {runs.kept['beam']['width']} wide"] = runs.beam(kind)
    return {name: {key: "" if value is None else round(value, 3) for key, value in row.items()}
            for name, row in rows.items()}


def neighbours_of_wrong_slots(runs: BlockRuns, setting: BlockSetting) -> dict[str, int]:
    """What the first wrong slot of a round holds, beside greedy decoding's tokens around it, over the examples.

    For a strict setting, whose output is greedy decoding's. A token that stands before and after counts as before.
    """
    found: dict[str, int] = dict.fromkeys(("the token before", "the token after", "another"), 0)
    for text in runs.examples:
        greedy = [token for _, emitted in runs.rounds(text, None) for token in emitted]
        at = 0
        for drafted, emitted in runs.rounds(text, setting):
            right = len(commonprefix((drafted, emitted)))
            if right < min(len(drafted), len(emitted)):
                before, after = greedy[:at + right][-1:], greedy[at + right + 1:][:1]
                held = [drafted[right]]
                found["the token before" if held == before else "the token after" if held == after else "another"] += 1
            at += len(emitted)
    return found


def rates(found: Counts) -> dict[str, float | None]:
    """The rates of these totals; None where nothing was drafted."""
    return {"tokens per forward": found["tokens"] / found["forwards"],
            "accepted share": found["accepted"] / found["drafted"] if found["drafted"] else None,
            "phoneme error rate": found["edits"] / found["length"], "word error rate": found["wrong"] / found["words"]}


def load_block_runs(path: str | Path = SHIPPED) -> BlockRuns:
    """The runs in a file; Refusal where it is missing or damaged."""
    try:
        runs = BlockRuns(json.loads(Path(path).read_text(encoding="utf-8")))
        for by_kind in runs.by_setting.values():
            for found in by_kind.values():
                rates(found)
    except (OSError, ValueError, KeyError, TypeError, IndexError, ZeroDivisionError):
        raise Refusal(f"{path} holds no recorded runs: make them with `python .ci/record_g2p.py`") from None
    return runs


def marks(rounds: list[tuple[list[int], list[int]]]) -> tuple[list[str], list[str]]:
    """Words and roles of a run for `show.tokens`: accepted, the target's own, and rejected with a bar before it."""
    words: list[str] = []
    roles: list[str] = []
    for drafted, emitted in rounds:
        accepted = next((n for n, pair in enumerate(zip(drafted, emitted, strict=False)) if pair[0] != pair[1]),
                        min(len(drafted), len(emitted)))
        accepted = min(accepted, max(len(emitted) - 1, 0)) if len(drafted) < len(emitted) else accepted
        words += [NAMES[token] for token in emitted]
        roles += ["accepted"] * accepted + ["target"] * (len(emitted) - accepted)
        if accepted < len(drafted):
            words.append(f"({NAMES[drafted[accepted]]})")
            roles.append("rejected")
    return words, roles
