"""A name that is not there is refused with those that are."""

import copy

import pytest

from specdec_lib.by_name import ByName, one_of
from specdec_lib.types import Refusal


def test_another_name_is_refused_with_its_kind_and_the_names():
    fits = ByName({"base": 1, "long": 2}, "fit")
    for some in (fits, copy.deepcopy(fits)):
        assert some["long"] == 2
        with pytest.raises(Refusal, match="^there is no fit 'nope'; there are: base, long$"):
            some["nope"]
    assert fits.get("nope") is None
    assert one_of(["base", "long"], "long", "fit") == "long"
    with pytest.raises(Refusal, match="^there is no fit 'nope'; there are: base, long$"):
        one_of(iter(["base", "long"]), "nope", "fit")
