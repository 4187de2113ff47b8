"""Specs are read once into a frozen value, and written back as they were read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_lib import catalog
from specdec_lib.bench.plan import Plan
from specdec_lib.specs import MethodSpec, PartSpec, parse_part, split_specs, write_part
from specdec_lib.types import Refusal

NAMES = st.from_regex(r"[a-z][a-z+-]{0,12}[a-z]", fullmatch=True)
WORDS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(str.isidentifier).filter(lambda word: word not in (
    "if", "in", "is", "or", "as", "and", "def", "del", "for", "not", "try", "from", "pass", "else", "elif", "with",
    "class", "break", "raise", "while", "yield", "async", "await", "import", "lambda", "global", "except", "assert",
    "return", "finally", "nonlocal", "continue"))
PLAIN = (st.none() | st.booleans() | st.integers(-9999, 9999) | st.floats(allow_nan=False, allow_infinity=False)
         | st.text("abc ,()@'\"-", max_size=8))
VALUES = st.recursive(PLAIN, lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text("xy", max_size=3), inner,
                                                                                     max_size=2), max_leaves=4)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.builds(PartSpec, NAMES, st.dictionaries(WORDS, VALUES, max_size=3)))
def test_what_is_written_is_read_back(part):
    assert parse_part(write_part(part)) == part


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.builds(PartSpec, NAMES, st.dictionaries(WORDS, PLAIN | st.tuples(PLAIN, PLAIN), max_size=2)),
                min_size=1, max_size=4))
def test_a_list_of_specs_is_split_at_its_own_commas_alone(parts):
    texts = [write_part(part) for part in parts]
    assert split_specs(", ".join(texts)) == texts


def test_a_method_spec_knows_what_replaces_its_parts_and_keeps_how_it_was_written():
    spec = catalog.method_spec("eagle(depth=3)@svip(h=0.2)@typical")
    assert (spec.name, spec.method.values) == ("eagle", {"depth": 3})
    assert spec.replaced == {"when": PartSpec("svip", {"h": 0.2}), "how": PartSpec("typical", {})}
    assert str(spec) == "eagle(depth=3)@svip(h=0.2)@typical"
    assert catalog.method_spec(spec) is spec, "behind the door nobody parses again"


def test_a_plan_holds_parsed_specs_and_writes_their_texts():
    plan = Plan(("sam", "eagle@svip"))
    assert all(isinstance(spec, MethodSpec) for spec in plan.methods)
    assert plan.as_dict()["methods"] == ["ar", "sam", "eagle@svip"]


@pytest.mark.parametrize("wrong", ["sam(1)", "sam(**{'a': 1})", "sam(a=b)", "sam(a=1", "sam(a=__import__('os'))",
                                   "sam()()"])
def test_anything_but_named_literals_is_refused(wrong):
    with pytest.raises(Refusal, match="not a name with parameters"):
        parse_part(wrong)
