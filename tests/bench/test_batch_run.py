"""A bench in batches on a tiny decoder: the answers of single runs, throughput, resume, and what is refused."""

import copy
import json
from dataclasses import replace

import pandas as pd
import pytest

from specdec_lib.bench import batch_costs, batch_run, run
from specdec_lib.bench.batch_summary import BatchMeasures, batch_measures, speedup, with_batches
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.results import Decode, Outcome, read_results, select
from specdec_lib.cost.curves import WIDTHS, measure_curve
from specdec_lib.measure import Row
from specdec_lib.models.table import Table
from specdec_lib.toys.toy_bench import untrained_environment
from specdec_lib.types import Refusal

METHODS = ("ar", "sam(depth=3)", "draft-model(depth=2)")
ASKED = [Prompt(place, "qa" if place % 2 else "rag", "qa" if place % 2 else "rag", (words,), None) for place, words in
         enumerate(("3 5 7 3 5", "9", "11 12 11 12 11", "40 41", "8 8 8 8 8 8 8"))]


@pytest.fixture(scope="module")
def world():
    return untrained_environment(4)


def plan(batch=2, **changes):
    return Plan(**{"methods": METHODS, "prompts": "five.jsonl", "sha256": "0" * 64, "target": "toy", "threads": 1,
                   "max_new_tokens": 10, "batch": batch, **changes})


def answers(folder):
    return {(one.method, one.question_id, one.repeat): one.outcome.tokens for one in read_results(folder)}


@pytest.fixture(scope="module")
def runs(world, tmp_path_factory):
    """Folder and summary by batch."""
    folder, out = tmp_path_factory.mktemp("runs"), {}
    out[1] = folder / "b1", run.run_bench(plan(1), world, ASKED, folder / "b1")
    for batch in (2, 8):
        out[batch] = folder / f"b{batch}", batch_run.run_batches(plan(batch), world, ASKED, folder / f"b{batch}")
    return out


@pytest.mark.parametrize("batch", [2, 8])
def test_answers_are_those_of_one_prompt_at_a_time_in_the_files_order(runs, batch):
    folder, told = runs[batch]
    assert answers(folder) == answers(runs[1][0])
    assert [one.question_id for one in select(read_results(folder), method="ar")] == [0, 1, 2, 3, 4]
    assert all(entry["identical_prompts"] == 5 for entry in told["methods"].values())


def test_a_curve_of_a_batch_times_the_forward_that_its_sequences_share(world):
    together, sizes = batch_costs.batch_of(world, 3), []
    score, together.score = together.score, lambda asked: sizes.append(len(asked)) or score(asked)
    assert measure_curve(together, (1, 2), (4,), 1, vocab=20, batch=3).batch == 3
    assert sizes == [3] * 4
    assert batch_costs.widths_in_batch(1) == batch_costs.widths_in_batch(8) == WIDTHS
    assert max(batch_costs.widths_in_batch(256)) == 9


def test_sampled_answers_have_the_random_numbers_of_single_decoding(world, tmp_path):
    warm = {"temperature": 1.0, "methods": ("ar", "draft-model(depth=2)"), "repeats": 2, "max_new_tokens": 6}
    run.run_bench(plan(1, **warm), world, ASKED[:3], tmp_path / "b1")
    batch_run.run_batches(plan(3, **warm), world, ASKED[:3], tmp_path / "b3")
    found = answers(tmp_path / "b3")
    assert found == answers(tmp_path / "b1")
    assert found["ar", 0, 0] != found["ar", 0, 1]


def test_the_settings_hold_the_checksums_of_what_was_loaded(world, tmp_path):
    loaded = {"eagle": "1" * 64}
    batch_run.run_batches(plan(methods=("ar",)), replace(world, loaded=lambda: loaded), ASKED[:1], tmp_path)
    assert json.loads((tmp_path / "settings.json").read_text())["loaded"] == loaded


def test_summary_and_folder_say_the_batch_and_what_it_did_as_a_whole(runs):
    folder, told = runs[2]
    assert json.loads((folder / "settings.json").read_text())["batch"] == told["settings"]["batch"] == 2
    assert "batch" not in runs[1][1]["settings"]
    entry = told["methods"]["draft-model(depth=2)"]["batch"]
    rounds, turns = (pd.read_parquet(folder / f"{name}.parquet") for name in ("rounds", "decodes"))
    mine, own = (table[table["method"] == "draft-model(depth=2)"] for table in (rounds, turns))
    assert (entry["size"], entry["tokens"]) == (2, int(mine["emitted"].sum()))
    assert entry["forwards"] == mine["forward"].nunique() < len(mine)
    assert entry["sequences_per_forward"] == pytest.approx(len(mine) / entry["forwards"])
    assert 1 < entry["sequences_per_forward"] <= 2
    assert entry["tokens_per_forward_and_sequence"] == pytest.approx(mine["emitted"].sum() / len(mine))
    assert entry["seconds"] == pytest.approx(own["ended"].max() - own["prefill"].sum(), rel=1e-5)
    assert entry["tokens_per_second"] == pytest.approx(entry["tokens"] / entry["seconds"], rel=1e-5)
    assert told["methods"]["ar"]["batch"]["speedup"] == 1
    predicted = copy.deepcopy(told)
    for entry in predicted["methods"].values():
        entry["expected_speedup"] = 2.0
    found = with_batches(predicted, read_results(folder))["methods"].values()
    assert {one["expected_speedup"] for one in found} == {None}, "one curve knows no batches"
    assert told["methods"]["ar"]["expected_speedup"] is None


def test_rounds_and_prefill_add_up_to_the_time_to_the_last_token(runs):
    for one in read_results(runs[8][0]):
        began, ended = one.outcome.span
        assert one.outcome.prefill + one.outcome.seconds == pytest.approx(ended - began, rel=1e-6)
        assert sum(row.seconds for row in one.outcome.rows) == pytest.approx(one.outcome.seconds, rel=1e-3)


def test_a_run_that_was_stopped_goes_on_at_the_next_method_and_a_finished_one_is_only_read(world, tmp_path):
    seen = []

    def stop(done, total, name):
        seen.append(name)
        if name == "draft-model(depth=2)":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch_run.run_batches(plan(), world, ASKED, tmp_path / "run", progress=stop)
    assert len(list((tmp_path / "run" / "parts").iterdir())) == 2
    again = []
    told = batch_run.run_batches(plan(), world, ASKED, tmp_path / "run", progress=lambda *said: again.append(said[2]))
    assert {"ar", "sam(depth=3)"} <= set(seen)
    assert set(again) == {"warm-up of draft-model(depth=2)", "draft-model(depth=2)"}
    assert len(answers(tmp_path / "run")) == 15
    assert batch_run.run_batches(plan(), world, ASKED, tmp_path / "run", progress=None) == told
    with pytest.raises(Refusal, match="batch is 2 there and 3 here"):
        batch_run.run_batches(plan(3), world, ASKED, tmp_path / "run")


def test_a_stopped_run_with_numbers_and_words_as_ids_goes_on(world, tmp_path):
    """A stream's table holds one kind of id, so those of a file that mixes them come back as words."""
    mixed = [ASKED[0], replace(ASKED[1], question_id="second")]

    def stop(done, total, name):
        if name == "sam(depth=3)":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch_run.run_batches(plan(), world, mixed, tmp_path / "run", progress=stop)
    told = batch_run.run_batches(plan(), world, mixed, tmp_path / "run")
    assert all(entry["identical_prompts"] == 2 for entry in told["methods"].values())


class Together:
    """A peer."""

    name = "together"

    def together(self, many, max_new_tokens):
        return 0.5, [((7, 8), 2) for _ in many]


def test_a_peers_reading_is_its_prefill_and_pieces_keep_their_blanks(world, monkeypatch):
    clock = iter((0.0, 2.0, 5.0, 7.0))
    monkeypatch.setattr(batch_run, "perf_counter", lambda: next(clock))
    spelled = replace(world, decode=lambda ids: " ".join(map(str, ids)))
    said = list(batch_run.peer_stream(plan(), spelled, Together(), ASKED[:3], [(3, 5)] * 3, 0, 9))
    assert [(one.outcome.prefill, one.outcome.seconds) for one in said] == [(0.25, 1.75), (0.25, 1.75), (0.5, 1.5)]
    assert (batch_measures(said).seconds, batch_measures(said).prefill) == (3.0, 1.0)
    assert said[0].pieces == (" 7", " 8")


def test_only_first_turns_are_decoded_and_that_is_said(world, tmp_path):
    two = [replace(ASKED[0], turns=("3 5", "7")), ASKED[1]]
    told = batch_run.run_batches(plan(methods=("ar",)), world, two, tmp_path)
    assert [one.turn for one in read_results(tmp_path)] == [0, 0]
    assert [said for said in told["settings"]["warnings"] if said.startswith("1 of 2 prompts")]


@pytest.mark.parametrize(("changes", "why"), [
    ({"methods": ("ar", "pearl")}, "pearl drafts while the target verifies"),
    ({"methods": ("ar", "respec+memory")}, "respec.memory learns from one prompt for the next"),
    ({"methods": ("ar", "draft-model@tapout")}, "learns from one prompt for the next"),
    ({"peers": ("hf-generate",)}, "leave hf-generate out"), ({"batch": 0}, "at least 1"),
    ({"batch": 257}, "at most 256")])
def test_what_cannot_run_in_a_batch_is_refused_by_name(changes, why):
    with pytest.raises(Refusal, match=why):
        plan(**changes)


def test_a_target_of_another_kind_is_refused_before_anything_is_measured(world, tmp_path):
    with pytest.raises(Refusal, match="Table: run it with --batch 1"):
        batch_run.run_batches(plan(), replace(world, target=Table({(): (.5, .5)})), ASKED, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def made(question, repeat, span, forwards, what=0.5, emitted=2, seconds=3.0):
    rows = tuple(Row("x", 1, 1, 1, emitted, 1, 3, 0.0, what, 1.0, 0.0, 0.1, (7,) * emitted, ("",) * emitted,
                     (1.0,) * emitted, forward=count) for count in forwards)
    tokens = (7,) * (emitted * len(rows))
    return Decode(question, "qa", "x", repeat, 0, False, 4, Outcome(tokens, 1.0, seconds, len(tokens), len(rows), rows,
                                                                  span))


def test_a_shared_forward_and_the_drafts_before_it_count_once():
    found = batch_measures([made(0, 0, (0.0, 6.0), (0, 1)), made(1, 0, (1.0, 8.0), (0, 1, 2)),
                            made(0, 1, (0.0, 4.0), (0,))])
    assert found == BatchMeasures(12, 4, 6, 18, 8.0 + 4.0 - 3.0, 3.0, 2.0, (6.0, 7.0, 4.0))
    told = found.as_dict()
    assert (told["tokens_per_second"], told["tokens_per_second_end_to_end"]) == (12 / 9, 1.0)
    assert (told["tokens_per_forward"], told["tokens_per_forward_and_sequence"]) == (3.0, 2.0)
    assert (told["sequences_per_forward"], told["rows_per_sequence"], told["drafting_share"]) == (1.5, 3.0, 2 / 9)
    assert told["seconds_to_last_token"] == {"median": 6.0, "longest": 7.0}


def test_one_sequence_at_a_time_has_the_same_measures():
    found = batch_measures([made(0, 0, None, (None, None)), made(1, 0, None, (None,), seconds=2.0)])
    assert found == BatchMeasures(6, 3, 3, 9, 5.0, 2.0, 1.5, (4.0, 3.0))
    assert speedup(found, found._replace(seconds=2.5)) == 2
    assert speedup(found._replace(tokens=0), found) is None
