"""Recorded runs of specdec on a tiny model, and the numbers and marks that are read from them."""

import json
from dataclasses import asdict

import pytest

from specdec_lib.analysis.block_settings import (
    SHIPPED,
    BlockRuns,
    gate_rows,
    load_block_runs,
    marks,
    neighbours_of_wrong_slots,
)
from specdec_lib.recordings.block_runs import BlockSetting, record_blocks, run_of, settings
from specdec_lib.seq2seq.alphabet import END, source_ids
from specdec_lib.seq2seq.dictionary import Spelling
from specdec_lib.types import Refusal
from tests.seq2seq.worlds import kit

SPELT = [Spelling(text, source_ids(text), ((5, 6, END),), kind) for text, kind in
         (("a", "words"), ("bad", "words"), ("a bad cat", "sentences"))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    world = kit()
    world.target.net.float()
    asked = settings((2, 4), (1, 3), (1.0,))
    path = tmp_path_factory.mktemp("runs") / "settings.json"
    path.write_text(json.dumps(record_blocks(world, SPELT, 1, asked, beam=2)))
    return world, load_block_runs(path)


def test_beta_one_is_recorded_once_and_all_others_at_every_tolerance():
    found = settings((5,), (1, 2, 3), (0.5, 3.0))
    assert found == [BlockSetting(5, 1, 0.5), *(BlockSetting(5, beta, gap) for beta in (2, 3) for gap in (0.5, 3.0))]
    assert [one.spec for one in found[:2]] == ["specdec(k=5)", "specdec(k=5)@top-beta(beta=2, tolerance=0.5)"]


def test_totals_are_those_of_the_decodes_and_examples_keep_their_rounds(made):
    world, runs = made
    for setting in (None, *settings((2, 4), (1, 3), (1.0,))):
        sessions = [run_of(world, "ar" if setting is None else setting.spec, one) for one in SPELT[:2]]
        found = runs.by_setting[setting]["words"]
        assert found["tokens"] == sum(len(session.output) for session in sessions)
        assert found["forwards"] == sum(len(session.rounds) for session in sessions)
        assert found["words"] == 2
        assert runs.rates(setting, "words")["tokens per forward"] == found["tokens"] / found["forwards"]
    assert runs.examples == ["a", "a bad cat"]
    strict = runs.rounds("a", runs.nearest(4, 1, 9.0))
    assert [token for _, emitted in strict for token in emitted] == list(run_of(world, "ar", SPELT[0]).output)
    assert runs.beam("sentences")["word error rate"] > 0
    assert runs.beam("sentences")["tokens per forward"] > 0


def test_marks_name_accepted_own_and_rejected_tokens():
    words, roles = marks([([5, 6, 7], [5, 9]), ([8], [8, 4]), ([], [10]), ([4, END], [4, END])])
    assert roles == ["accepted", "target", "rejected", "accepted", "target", "target", "accepted", "accepted"]
    assert words[2] == "(AH)"


def test_a_setting_that_nobody_recorded_and_a_damaged_file_are_refused(made, tmp_path):
    with pytest.raises(Refusal, match="nobody recorded k = 7"):
        made[1].nearest(7, 1, 1.0)
    (tmp_path / "bad.json").write_text('{"runs": [{}]}')
    with pytest.raises(Refusal, match="no recorded runs"):
        load_block_runs(tmp_path / "bad.json")


def test_in_the_shipped_runs_the_strict_gate_has_greedy_decodings_errors_and_a_lenient_one_accepts_more():
    runs = load_block_runs()
    assert SHIPPED.stat().st_size < 150_000
    assert runs.settings == [None, *settings()]
    for kind in runs.kinds:
        for one in runs.settings[1:]:
            if one.beta == 1:
                assert runs.by_setting[one][kind]["edits"] == runs.by_setting[None][kind]["edits"]
        rows = gate_rows(runs, kind, 10)
        assert rows["greedy"] == {name: "" if value is None else round(value, 3)
                                  for name, value in runs.rates(None, kind).items()}
        assert {"strict (beta 1)", "beta 5, 3 nats (lossy)"} < set(rows)
        assert rows["greedy"]["tokens per forward"] == 1
        for k in (5, 10, 25):
            strict, loose = (runs.rates(runs.nearest(k, *rule), kind)["tokens per forward"]
                             for rule in ((1, 1.0), (5, 3.0)))
            assert loose > strict > 1


def test_a_wrong_slot_holds_the_token_before_the_one_after_or_another():
    setting = BlockSetting(3, 1, 0.0)
    plain = [([], [token]) for token in (4, 5, 6, 7, 8)]
    rounds = [([4, 4, 9], [4, 5]),                 # a repetition
              ([7, 9, 9], [6]),                    # it skips the 6
              ([7, 9, 9], [7, 8])]                 # neither
    totals = {"words": dict.fromkeys(("tokens", "forwards", "drafted", "accepted", "edits", "length", "wrong"), 1)}
    runs = BlockRuns({"runs": [{"setting": None, **totals}, {"setting": asdict(setting), **totals}],
                      "examples": {"a": {"runs": [plain, rounds]}}})
    assert neighbours_of_wrong_slots(runs, setting) == {"the token before": 1, "the token after": 1, "another": 1}
    assert sum(neighbours_of_wrong_slots(load_block_runs(), load_block_runs().nearest(25, 1, 0.0)).values()) == 47
