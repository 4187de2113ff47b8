"""The findings of all notebooks as one page: by part, linked, with the command and machine that computed them."""

from types import SimpleNamespace

from specdec_lib.commands.site_findings import findings_page

MADE = {"command": "specdec site", "created": "2026-11-29T01:02:03+00:00", "commit": "0123456789abcdef",
        "changed": False, "machine": {"cores": 2, "processor": "AMD EPYC"}}
PAGES = [SimpleNamespace(name="12_when_svip", title="When to stop?", found=("At 0.5 it pays.", "Else not.")),
         SimpleNamespace(name="13_when_adaedl", title="Without an answer?", found=()),
         SimpleNamespace(name="40_respec", title="Does it gain?", found=("1.05 times.",))]


def test_every_notebook_with_a_conclusion_stands_below_its_part_with_a_link():
    page = findings_page(PAGES, MADE)
    svip = "**[12 · When to stop?](../../notebooks/12_when_svip.ipynb)**\nAt 0.5 it pays. Else not."
    respec = "**[40 · Does it gain?](../../notebooks/40_respec.ipynb)**\n1.05 times."
    places = [page.index(one) for one in ("## When to draft", svip, "## Systems, measured", respec)]
    assert places == sorted(places)
    assert "Without an answer?" not in page
    assert "## Training" not in page


def test_the_page_says_which_command_wrote_it_when_and_where():
    first, changed, bare = (" ".join(findings_page(PAGES, MADE | more).split())
                            for more in ({}, {"changed": True}, {"commit": None}))
    assert "Written by `specdec site` on 2026-11-29 at commit 0123456, on 2 cores of an AMD EPYC" in first
    assert "at commit 0123456 with changes, on 2 cores" in changed
    assert "on 2026-11-29, on 2 cores" in bare



def test_lines_are_short_except_for_the_titles():
    page = findings_page([SimpleNamespace(name="12_when_svip", title="When?", found=("It pays often. " * 40,))], MADE)
    assert max(map(len, page.splitlines())) <= 138
