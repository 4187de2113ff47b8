"""Help, listings and refused specs load none of the heavy libraries, and torch is there once it is used."""

import json
import subprocess
import sys

import pytest
import torch as real

from specdec_lib.lazy import LazyModule, torch

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
