"""The folder of a run: parts stand whole or not at all, a resume finds them, and one folder belongs to one plan."""

import pytest
from filelock import FileLock

from specdec_lib.bench import results
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.run_folder import RunFolder, refuse_own_file
from specdec_lib.commands.store import answers_in
from specdec_lib.cost.curves import CostCurve
from specdec_lib.files import LOCK, OWNER
from specdec_lib.types import Refusal
from tests.bench.made_up import decodes, turn

PLAN = Plan(("ar", "sam"), prompts="p.jsonl", sha256="0" * 64)
ONE, TWO = ([one] for one in decodes("ar", turn(0, 0), turn(2, 1), prompts=2))         # a prompt each
CURVE = CostCurve((1, 5), (8,), ((1.0, 1.25),))


@pytest.fixture
def begun(tmp_path):
    """A run with its first prompt done."""
    folder = RunFolder(tmp_path, PLAN)
    folder.keep_curve(CURVE)
    folder.write_part(0, ONE)
    return folder


def test_a_run_goes_on_at_the_first_prompt_that_is_not_written(begun):
    again = RunFolder(begun.path, PLAN)
    assert again.part(0) == ONE
    assert again.part(1) is None
    assert again.curve == CURVE
    assert not again.finished
    assert again.summary() is None


def test_a_part_that_a_kill_left_half_written_is_not_counted_and_is_removed(begun):
    half = begun.path / "parts" / ".00001"
    half.mkdir()
    results.tables(TWO).write(half)
    assert begun.part(1) is None
    assert RunFolder(begun.path, PLAN).part(1) is None
    assert not half.exists()
    begun.write_part(1, TWO)
    assert begun.part(1) == TWO


def test_the_summary_is_written_last_and_replaces_the_parts(begun):
    begun.write_part(1, TWO)
    begun.finish(ONE + TWO, {"methods": {}})
    again = RunFolder(begun.path, PLAN)
    assert again.finished
    assert again.summary() == {"methods": {}}
    assert results.read_results(again.path) == ONE + TWO
    assert sorted(one.name for one in begun.path.iterdir()) == [
        "cost.json", "decodes.parquet", "rounds.parquet", "settings.json", "summary.json"]


def test_parts_that_a_kill_left_beside_the_summary_are_removed_and_never_hide_that_the_run_is_finished(begun):
    parts = begun.path / "parts" / "00000"
    begun.finish(ONE, {"methods": {}})
    parts.mkdir(parents=True)
    assert list(answers_in(begun.path)) == [{"output": list(ONE[0].outcome.tokens)}]
    assert RunFolder(begun.path, PLAN).summary() == {"methods": {}}
    assert not parts.parent.exists()


def test_a_run_that_another_process_is_at_is_refused_and_stays_as_it_is(begun):
    half = begun.path / "parts" / ".00001.partial-1"
    half.mkdir()
    with FileLock(begun.path / LOCK):
        (begun.path / OWNER).write_text("process 7 on tiny")
        with pytest.raises(Refusal, match="in use by process 7 on tiny: wait until it has ended") as refused, \
                RunFolder.alone(begun.path, PLAN):
            pass
        assert "finished prompts are kept" not in str(refused.value)
        assert half.exists()
    with RunFolder.alone(begun.path, PLAN) as again:
        assert again.part(0) == ONE
    assert not half.exists()
    assert not list(begun.path.glob(".*"))


def test_a_begun_run_refuses_another_plan_and_stays_as_it_was(begun):
    other = Plan(("ar", "sam"), prompts="p.jsonl", sha256="0" * 64, seed=7, repeats=2, limit=3, max_new_tokens=9)
    with pytest.raises(Refusal, match="limit is None there and 3 here") as refused:
        RunFolder(begun.path, other)
    assert str(refused.value).count(" there and ") == 3, "three settings name the difference, more would bury it"
    assert RunFolder(begun.path, PLAN).part(0) == ONE


def test_a_part_that_cannot_be_read_is_refused_by_its_name(begun):
    (begun.path / "parts" / "00000" / "rounds.parquet").write_bytes(b"no table")
    with pytest.raises(Refusal, match=r"parts/00000 cannot be read"):
        begun.part(0)


def test_a_broken_settings_file_and_a_file_in_the_place_of_the_folder_are_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.json").write_text("{")
    with pytest.raises(Refusal, match=r"settings\.json cannot be read"):
        RunFolder(tmp_path / "run", PLAN)
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match="is a file, and a run is a folder"):
        RunFolder(tmp_path / "file", PLAN)


@pytest.mark.parametrize(("name", "said"), [
    ("cost.json", "holds cost.json and no settings.json"), ("summary.json", "holds summary.json and no settings.json"),
    ("decodes.parquet", "holds decodes.parquet and no settings.json"), ("parts", "holds parts and no settings.json"),
    ("settings.json", "is not of a run of `specdec bench`")])
def test_a_folder_of_something_else_is_refused_and_stays_as_it_was(name, said, tmp_path):
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(Refusal, match=f"{said}.*: give another --out"):
        RunFolder(tmp_path, PLAN)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == '{"mine": 1}'


def test_a_finished_run_that_lost_its_settings_is_not_taken_for_any_other(begun):
    begun.finish(ONE, {"methods": {}})
    (begun.path / "settings.json").unlink()
    with pytest.raises(Refusal, match="no settings.json"):
        RunFolder(begun.path, Plan(("ar",), prompts="others.jsonl", sha256="1" * 64))
    assert begun.curve == CURVE


def test_a_file_of_a_run_that_is_read_is_not_written_over(begun):
    refuse_own_file(begun.path / "both.csv", [begun.path])
    refuse_own_file(begun.path.parent / "summary.json", [begun.path])
    with pytest.raises(Refusal, match="is a file of the run in .*: give another --out"):
        refuse_own_file(begun.path / "parts" / ".." / "summary.json", [begun.path])


def test_numbers_that_json_does_not_know_are_never_written(begun):
    with pytest.raises(ValueError, match="JSON"):
        begun.finish(ONE, {"speedup": float("nan")})
    assert not RunFolder(begun.path, PLAN).finished
