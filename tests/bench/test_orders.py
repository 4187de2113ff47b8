"""Streams in the file's and in a shuffled order, on a table: apart, spread over the run, and the same after a kill."""

import pytest

from specdec_lib import catalog
from specdec_lib.bench import run, runners
from specdec_lib.bench.plan import FILE, SHUFFLED
from specdec_lib.bench.results import read_results
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.cards import Card, TokenizerFacts
from specdec_lib.index.store_build import build_store
from specdec_lib.types import Method, Refusal
from tests.bench.test_run import bench, encode, plan, stop_after, world

SEED = 0                                           # the prompt with two turns comes first
NAMES = ["ar", "learner", "learner (warm)", "learner (warm, shuffled)"]


def make(kit) -> Method:
    what = kit.part("feedback-retrieval", query=1, remember=99)
    return Method(kit.part("fixed", depth=3), what, kit.part("match"))


@pytest.fixture(autouse=True)
def learner(monkeypatch):
    """A method of the catalogue that copies from earlier answers and runs on a table."""
    card = Card("learner", idea="", source="", make=make, learns_across_prompts=True)
    monkeypatch.setitem(catalog._cards("methods"), "learner", card)


def learning(**changes):
    return plan(**{"methods": ("ar", "learner"), "orders": (FILE, SHUFFLED), "seed": SEED} | changes)


def drafts(folder) -> dict:
    """What every decode drafted and what was accepted of it, without its seconds."""
    return {(one.method, one.question_id, one.turn, one.repeat):
            (one.outcome.tokens, [(row.drafted, row.accepted) for row in one.outcome.rows])
            for one in read_results(folder)}


def asked(folder, name, turn=0) -> list:
    return [one.question_id for one in read_results(folder) if (one.method, one.turn, one.repeat) == (name, turn, 0)]


def test_cold_and_both_warm_orders_are_reported_apart_and_every_prompt_once_in_each(tmp_path):
    result = bench(tmp_path, a_plan=learning())
    assert list(result["methods"]) == NAMES
    assert result["settings"]["orders"] == ["file", "shuffled"]
    assert asked(tmp_path, NAMES[2]) == [1, 2, 3]
    assert asked(tmp_path, NAMES[3]) == [2, 3, 1]
    assert {entry["prompts"] for entry in result["methods"].values()} == {3}
    assert {entry["identical_prompts"] for entry in result["methods"].values()} == {3}


@pytest.mark.parametrize("orders", [(FILE,), (SHUFFLED,)])
def test_an_order_that_was_not_asked_for_is_not_run(tmp_path, orders):
    names = NAMES[:3] if orders == (FILE,) else [*NAMES[:2], NAMES[3]]
    assert list(bench(tmp_path, a_plan=learning(orders=orders))["methods"]) == names


def test_a_stream_knows_what_came_before_it_in_its_own_order(tmp_path):
    bench(tmp_path, a_plan=learning())
    told = drafts(tmp_path)
    first = {name: told[name, asked(tmp_path, name)[0], 0, 0] for name in NAMES[2:]}
    assert first == {name: told["learner", asked(tmp_path, name)[0], 0, 0] for name in NAMES[2:]}, "cold at first"
    assert all([told[name, n, 0, 0] for n in (1, 2, 3)] != [told["learner", n, 0, 0] for n in (1, 2, 3)]
               for name in NAMES[2:]), "and warm later"


def test_second_turns_of_a_prompt_that_the_file_has_later_build_on_the_same_answer(tmp_path):
    seen = []
    bench(tmp_path, a_plan=learning(),
          a_world=world(encode=lambda messages: seen.append(list(messages)) or encode(messages)))
    second = [messages for messages in seen if len(messages) == 3]
    assert len(second) == 2
    assert second[0] == second[1]
    told = drafts(tmp_path)
    assert told[NAMES[3], 2, 1, 0][0] == told["ar", 2, 1, 0][0]


@pytest.mark.parametrize("decodes", [3, 9, 11, 14, 24, 30])
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, decodes):
    bench(tmp_path / "whole", a_plan=learning())
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path / "cut", a_plan=learning(), progress=stop_after(decodes))
    assert not RunFolder(tmp_path / "cut", learning()).finished
    bench(tmp_path / "cut", a_plan=learning())
    assert drafts(tmp_path / "cut") == drafts(tmp_path / "whole")


def test_a_store_of_the_runs_own_answers_is_warned_of_in_the_summary(tmp_path):
    long = {"max_new_tokens": 40, "repeats": 1, "methods": ("ar", "learner")}
    endless = world(facts=TokenizerFacts(vocab=3))
    bench(tmp_path / "first", a_plan=learning(**long), a_world=endless)
    plain = [one.outcome.tokens for one in read_results(tmp_path / "first") if one.method == "ar"]
    build_store(tmp_path / "own", plain)
    again = bench(tmp_path / "again", a_plan=learning(**long, store=str(tmp_path / "own")), a_world=endless)
    assert any("to 3 of 3 prompts" in warning for warning in again["settings"]["warnings"])


def test_a_store_that_is_damaged_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "bad").write_bytes(b"no store")
    with pytest.raises(Refusal, match="build it again"):
        bench(tmp_path / "run", a_plan=plan(store=str(tmp_path / "bad")))
    assert not (tmp_path / "run" / "parts").exists()


def test_progress_counts_every_decode_of_every_order(tmp_path):
    seen = []
    bench(tmp_path, a_plan=learning(), progress=lambda done, total, name: seen.append((done, total)))
    assert seen[-1] == (32, 32)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(read_results(tmp_path)) == 32


def test_the_shuffled_order_is_the_seeds_and_every_prompts(tmp_path):
    mixed = [runners.Runner("ar", None), runners.Runner("x", None, stream=True, order=SHUFFLED)]

    def order(seed):
        return [index for place, index, _ in run.schedule(20, mixed, seed) if place >= 20]
    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(20))
    assert [place for place, _, _ in run.schedule(2, mixed[:1], 1)] == [0, 1]


def test_the_files_own_order_leaves_older_folders_usable():
    assert "orders" not in plan().as_dict()
    assert learning().as_dict()["orders"] == ["file", "shuffled"]


@pytest.mark.parametrize(("change", "words"), [
    ({"orders": ()}, "got none"), ({"orders": ("backwards",)}, "got backwards"), ({"orders": (FILE, FILE)}, "twice"),
    ({"methods": ("ar", "sam")}, "none of these does")])
def test_an_order_that_makes_no_sense_is_refused(change, words):
    with pytest.raises(Refusal, match=words):
        learning(**change)
