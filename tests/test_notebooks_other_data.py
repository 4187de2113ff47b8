"""Notebooks given recordings of other data run through and say what those show: their findings are not asserted."""

from dataclasses import replace

import nbformat
import pytest

from specdec_lib.commands import notebook_runner
from specdec_lib.measure import rows, tokens_per_target_forward
from specdec_lib.recordings.folder import SHORTEST, load_recordings
from specdec_lib.recordings.replay_method import replay_method
from tests import altered_recordings as altered
from tests.test_notebooks import BOOKS, ENV

SHORT = 40                                         # output tokens of an answer, so that a notebook takes seconds
SAID = {                                           # a sentence that these data turn round
    "12_when_svip": "The released default is predicted slower than the best fixed length",
    "21_what_suffix_automaton": "At five, two drafters give",
    "23_what_draft_model": "The acceptance rate of this draft is higher than the one that breaks even",
}


@pytest.fixture(scope="module")
def shipped():
    return load_recordings()


@pytest.fixture(scope="module")
def better(shipped, tmp_path_factory):
    """A folder of short answers whose trained drafters are right more often than the shipped ones."""
    folder = tmp_path_factory.mktemp("better")
    return altered.save_altered(shipped, lambda one: altered.shorter(altered.better(one), SHORT), folder)


def tau(recording, drafter):
    return tokens_per_target_forward(rows(replay_method(drafter, recording, None)))


@pytest.mark.parametrize("alter", [altered.better, altered.worse, altered.shorter, altered.backwards, altered.looping])
def test_an_altered_recording_still_answers_with_the_best_token_of_each_row(shipped, alter):
    found = alter(shipped["qa"])
    assert found.row_stats.ids[:, 0].tolist() == list(found.output)
    assert {len(some) for lengths in found.drafts.values() for some in lengths.values()} == {len(found.output)}
    assert replay_method("prompt-lookup", found, None).tokens == found.tokens


def test_alterations_make_drafters_better_and_worse(shipped):
    one = shipped["qa"]
    assert tau(altered.worse(one), "eagle") == 1 < tau(one, "eagle") < tau(altered.better(one), "eagle")
    assert tau(altered.worse(one), "eagle2") <= tau(one, "eagle2") < tau(altered.better(one), "eagle2")
    assert tau(altered.looping(one), "prompt-lookup") > tau(one, "prompt-lookup")


@pytest.mark.notebooks
@pytest.mark.parametrize("name", SAID)
def test_a_notebook_follows_other_recordings(name, better, tmp_path):
    book = next(book for book in BOOKS if book.stem == name)
    values = notebook_runner.smoke_values(book) | {"recordings": str(better)}
    done = notebook_runner.run_notebook(book, tmp_path / book.name, values, env=ENV, cell_seconds=60, fork=True)
    told = "\n".join(output.data["text/plain"] for cell in nbformat.read(done.path, as_version=4).cells
                     for output in cell.get("outputs", ()) if "text/plain" in output.get("data", {}))
    assert SAID[name] in told


@pytest.mark.notebooks
@pytest.mark.parametrize(("name", "tokens"), [("22_what_token_recycling", 16), ("25b_what_likely_tree", SHORTEST),
                                              ("28_what_diffusion_lm", SHORTEST)])
def test_a_notebook_runs_on_one_short_answer(name, tokens, shipped, tmp_path):
    folder = altered.save_altered({"qa": shipped["qa"]}, lambda one: altered.shorter(one, tokens), tmp_path / "short")
    book = next(book for book in BOOKS if book.stem == name)
    values = notebook_runner.smoke_values(book) | {"recordings": str(folder), "family": "qa"}
    notebook_runner.run_notebook(book, tmp_path / book.name, values, env=ENV, cell_seconds=60, fork=True)


@pytest.mark.notebooks
@pytest.mark.parametrize("name", ["00_tour", "17_when_confidence", "27b_what_slot_tree", "43_draft_length_policies"])
def test_a_notebook_refuses_recordings_that_lack_its_drafter(name, shipped, tmp_path):
    def copies_alone(one):
        return replace(one, drafts={"prompt-lookup": one.drafts["prompt-lookup"]}, trees={}, lattices={}, blocks={})

    folder = altered.save_altered({"qa": shipped["qa"]}, copies_alone, tmp_path / "copies")
    book = next(book for book in BOOKS if book.stem == name)
    values = notebook_runner.smoke_values(book) | {"recordings": str(folder), "family": "qa"}
    with pytest.raises(notebook_runner.CellRefusal, match="specdec record --add --drafters"):
        notebook_runner.run_notebook(book, tmp_path / book.name, values, env=ENV, cell_seconds=60, fork=True)


@pytest.mark.notebooks
@pytest.mark.parametrize(("name", "unusual"), [("33_how_relaxed", {"rank": 1}),        # a rule that exchanges nothing
                                               ("11_when_entropy_trigger", {"threshold": 0.0}),    # that never fires
                                               ("04_speed_algebra", {"alpha": 1.0, "c": 0.0}),
                                               ("04_speed_algebra", {"alpha": 0.0, "c": 9.0}),
                                               ("12_when_svip", {"ratio": 0.0}),                   # that never stops
                                               ("16_when_adaptive_length", {"rate": 1.0, "longest": 50}),
                                               ("17_when_confidence", {"threshold": 0.0, "depth": 1})], ids=str)
def test_a_notebook_takes_the_ends_of_a_parameter(name, unusual, tmp_path):
    book = next(book for book in BOOKS if book.stem == name)
    values = notebook_runner.smoke_values(book) | unusual
    notebook_runner.run_notebook(book, tmp_path / book.name, values, env=ENV, cell_seconds=60, fork=True)
