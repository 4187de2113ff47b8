"""The bibliography has every arXiv number that the package or a notebook cites, and where each work is named."""

from pathlib import Path

from specdec_lib.analysis.bibliography import UNNUMBERED, WORKS, cited, named, naming, works_table

ROOT = Path(__file__).parents[2]
FILES = [path for place, kind in (("specdec_lib", "*.py"), ("notebooks", "*.ipynb")) for path in
         sorted((ROOT / place).rglob(kind)) if path.stem != "bibliography" and ".ipynb_checkpoints" not in path.parts]


def test_every_cited_number_is_listed_and_every_listed_one_is_cited():
    assert set(naming(FILES, cited)) == set(WORKS)


def test_numbers_are_found_with_their_neighbours_and_versions_are_not_numbers():
    text = "arXiv 2511.01282, (2408.11850); 12511.01282, 2513.01282, 0.2511.01282"
    assert cited(text) == {"2511.01282", "2408.11850"}


def test_a_work_knows_its_year_and_its_files(tmp_path):
    book = tmp_path / "40_respec.ipynb"
    book.write_text("arXiv 2511.01282")
    rows = {row["work"]: row for row in works_table(naming([book]))}
    assert rows["ReSpec"] == {"work": "ReSpec", "year": 2025, "arXiv": "2511.01282", "named in": ["40_respec"]}
    assert rows["PEARL"]["named in"] == []
    assert rows["EAGLE-2"] == {"work": "EAGLE-2", "year": None, "arXiv": None, "named in": []}
    assert list(rows) == sorted(rows, key=str.lower)


def test_a_work_is_found_by_its_name_as_a_whole_word_and_across_the_lines_of_a_cell():
    cell = ('"source": [\n    "a rule (Leviathan et\\n",\n    "al. 2023), EAGLE-2\'s tree, '
            'SpecDiff-2, [40 ReSpec](40_respec.ipynb)"')
    assert named(cell) == {"2211.17192", "EAGLE-2", "2511.00606"}
    assert named("Chen et al. 2024, PEARLs, Liu et al. 2024") == set()
    assert named("Chen et al. 2023; Muon") == {"2302.01318", "2502.16982"}


def test_every_unnumbered_work_is_named_in_a_notebook_and_a_number_is_found_wherever_it_was_cited():
    found = naming(FILES)
    assert all(set(files) <= set(found[number]) for number, files in naming(FILES, cited).items())
    assert set(UNNUMBERED) <= set(naming(path for path in FILES if path.suffix == ".ipynb"))
