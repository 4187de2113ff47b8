"""Help, listings and refused specs load none of the heavy libraries, and torch is there once it is used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch as real

from specdec_lib.lazy import GRAMMAR, LazyModule, import_jsonschema, torch

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "pandas", "pyarrow", "plotly", "papermill", "safetensors", "IPython", "scipy")
WATCHED = """
import json, sys
from specdec_lib import cli

said = {}
for words in json.loads(sys.argv[1]):
    code = cli.run(words)
    said[" ".join(words)] = [code, [name for name in json.loads(sys.argv[2]) if name in sys.modules]]
sys.stderr.write("\\n" + json.dumps(said))
"""
QUICK = {"--help": 0, "generate --help": 0, "bench --help": 0, "train --help": 0, "methods": 0, "parts --json": 0,
         "methods --checkpoints nowhere": 2, "generate --method nobody a": 2, "bench --methods ar,sam(": 2,
         "bench --methods ar@nobody": 2, "report --methods nobody": 2, "overhead --method nobody": 2,
         "record --drafters eagle,mine=nobody": 2, "canvas --methods nobody": 2,
         "bench --limit many": 2, "nothing": 2}


def test_help_listings_and_refused_specs_load_nothing_heavy():
    words = [line.split(" ") for line in QUICK]
    done = subprocess.run([sys.executable, "-c", WATCHED, json.dumps(words), json.dumps(HEAVY)], capture_output=True,
                          text=True, timeout=300, check=True)
    assert "Traceback" not in done.stderr
    found = json.loads(done.stderr.splitlines()[-1])
    assert {line: code for line, (code, _) in found.items()} == QUICK
    assert {line: loaded for line, (_, loaded) in found.items()} == dict.fromkeys(QUICK, [])


def test_the_package_and_its_door_load_nothing_heavy_either():
    code = f"import sys, specdec_lib; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"


def test_lazy_torch_is_torch():
    assert torch.Tensor is real.Tensor
    assert torch.special.entr is real.special.entr
    assert isinstance(torch.zeros(1), real.Tensor)


def test_a_lazy_module_imports_at_the_first_attribute_only(monkeypatch):
    lazy = LazyModule("colorsys")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert "colorsys" not in sys.modules
    assert lazy.rgb_to_hsv(1, 1, 1) == (0.0, 0.0, 1)
    assert "colorsys" in sys.modules
    assert "rgb_to_hsv" in vars(lazy)


@pytest.mark.parametrize("name", ["__wrapped__", "__path__"])
def test_inspection_does_not_load_a_lazy_module(name):
    with pytest.raises(AttributeError, match="at its first use"):
        getattr(LazyModule("no_such_module"), name)


@pytest.mark.parametrize("line", [
    "from specdec_lib import figures; figures.curves([1, 2], {'a': [1, 2]}, 'x', 'y', 'z')._repr_mimebundle_()",
    "from specdec_lib.commands import notebook_runner as n; n.parameters('notebooks/00_tour.ipynb')"])
def test_neither_a_figure_nor_a_notebook_compiles_the_grammar_of_web_addresses(line):
    code = f"import sys; {line}; print([name in sys.modules for name in ('jsonschema', 'rfc3987_syntax', 'lark')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True,
                          cwd=ROOT, env=os.environ | {"PLOTLY_RENDERER": "plotly_mimetype"})
    assert done.stdout.splitlines()[-1] == "[True, False, False]"


def test_jsonschema_is_imported_without_its_grammar_and_not_again(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "jsonschema" or name == GRAMMAR]:
        monkeypatch.delitem(sys.modules, name)
    import_jsonschema()
    first = sys.modules["jsonschema"]
    assert GRAMMAR not in sys.modules
    with pytest.raises(first.ValidationError):
        first.validate({"name": 1}, {"properties": {"name": {"type": "string"}}})
    import_jsonschema()
    assert sys.modules["jsonschema"] is first


def test_a_missing_jsonschema_is_no_error(monkeypatch):
    monkeypatch.delitem(sys.modules, "jsonschema", raising=False)
    monkeypatch.delitem(sys.modules, GRAMMAR, raising=False)
    monkeypatch.setattr("specdec_lib.lazy.import_module", missing)
    import_jsonschema()
    assert GRAMMAR not in sys.modules


def missing(name: str):
    raise ModuleNotFoundError(name)
