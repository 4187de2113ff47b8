"""`specdec methods` and `specdec parts`: every card with its parameters, and one card whole."""

import json

import pytest

from specdec_lib import catalog, cli
from specdec_lib.commands.methods import list_methods, list_parts
from specdec_lib.parameters import check_parameters
from tests.small_bench import refused

CARDS = [*catalog.methods().values(), *(card for room in catalog.parts().values() for card in room.values())]


def test_every_entry_has_its_notebook_and_its_parameters_with_their_defaults():
    for card, entry in zip(CARDS, [*list_methods(), *list_parts()], strict=True):
        assert (entry["name"], entry["notebook"]) == (card.name, card.notebook)
        check_parameters(card, entry["parameters"])        # each can be written in a spec
        plain = json.loads(json.dumps(entry["parameters"], allow_nan=False))
        assert list(plain) == list(entry["parameters"])
    found = {entry["name"]: entry["parameters"] for entry in list_methods()}
    assert found["ar"] == {}
    assert found["sam"] == {"depth": None, "mode": "recent", "threshold": 1}


def test_a_name_shows_one_method_with_its_parameters_their_defaults_and_what_they_do(capsys):
    assert cli.run(["methods", "sam"]) == 0
    line, *rest = capsys.readouterr().out.splitlines()
    assert line.startswith("sam  lossless  copy what followed")
    assert rest == ["notebook 21_what_suffix_automaton", "parameters with their defaults, written as sam(depth=None):",
                    "  depth=None", "  mode='recent'", "  threshold=1", "",
                    "`depth` defaults to the number of nodes that the cost curve allows."]
    assert cli.run(["methods", "ar"]) == 0
    assert "no parameters" in capsys.readouterr().out


def test_a_name_shows_one_part_and_as_json_a_list_of_it(capsys):
    assert cli.run(["parts", "svip"]) == 0
    assert capsys.readouterr().out.startswith("when svip")
    assert cli.run(["parts", "svip", "--json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)
    assert (entry["room"], entry["name"]) == ("when", "svip")
    assert "h" in entry["parameters"]


@pytest.mark.parametrize(("words", "sentence"), [(["methods", "nope"], "no method named 'nope'"),
                                                 (["parts", "nope"], "no part named 'nope'")])
def test_an_unknown_name_is_refused_with_the_known_ones(words, sentence, capsys):
    assert f"{sentence}; there are: " in refused(words, capsys)
