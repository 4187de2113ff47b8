"""The bibliography names every arXiv number that the package or a notebook cites, and none that nobody cites."""

from pathlib import Path

from specdec_lib.analysis.bibliography import WORKS, cited, citing, works_table

ROOT = Path(__file__).parents[2]
FILES = [path for place, kind in (("specdec_lib", "*.py"), ("notebooks", "*.ipynb")) for path in
         sorted((ROOT / place).rglob(kind)) if path.stem != "bibliography" and ".ipynb_checkpoints" not in path.parts]


def test_every_cited_number_is_listed_and_every_listed_one_is_cited():
    assert set(citing(FILES)) == set(WORKS)


def test_numbers_are_found_with_their_neighbours_and_versions_are_not_numbers():
    text = "arXiv 2511.01282, (2408.11850); 12511.01282, 2513.01282, 0.2511.01282"
    assert cited(text) == {"2511.01282", "2408.11850"}


def test_a_work_knows_its_year_and_its_files(tmp_path):
    book = tmp_path / "40_respec.ipynb"
    book.write_text("arXiv 2511.01282")
    rows = {row["work"]: row for row in works_table(citing([book]))}
    assert rows["ReSpec"] == {"work": "ReSpec", "year": 2025, "arXiv": "2511.01282", "cited in": ["40_respec"]}
    assert rows["PEARL"]["cited in"] == []
    assert list(rows) == sorted(rows, key=str.lower)
