"""Values that a part refuses are refused before any model is there; what only a model can tell is left to it."""

import pytest

from specdec_lib import catalog
from specdec_lib.bench.spec_trial import try_specs
from specdec_lib.types import Refusal


@pytest.mark.parametrize(("spec", "why"), [
    ("sam(depth=-1)", "depth >= 0"), ("draft-model@svip(h=-1)", "zero or more"),
    ("eagle@confidence(threshold=2)", "between"),
    ("eagle@typical(eps=-1)", "eps"), ("sam@tapout(arms=['nope'])", "'nope' is none"),
    ("sam@tapout(arms={'svip': {'h': 'a'}})", "cannot take h='a'"), ("specdiff(steps=0)", "at least 1")])
def test_a_value_that_its_part_refuses_is_refused_without_a_model(spec, why):
    with pytest.raises(Refusal, match=why):
        try_specs([catalog.method_spec(spec)], None)


def test_every_method_passes_with_its_own_values():
    try_specs(list(map(catalog.method_spec, catalog.methods())), None)


def test_a_value_that_some_cost_curve_allows_passes():
    try_specs([catalog.method_spec("eagle@cost-optimal(shortest=3)")], None)             # up to twice the nodes
