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
                                   "sam()()", "sam(a={[]: 1})", f"sam(a={'-' * 900}1)"])
def test_anything_but_named_literals_is_refused(wrong):
    with pytest.raises(Refusal, match="not a name with parameters"):
        parse_part(wrong)


@pytest.mark.parametrize(("wrong", "why"), [
    ("sam@typical(eps='a')", "cannot take eps='a'"), ("sam@typical(eps=None)", "cannot take eps=None"),
    ("sam(depth=[1])", "valid integer"), ("sam@fixed(depth='x')", "valid integer"), ("sam(depth=1.5)", "valid integer"),
    ("sam(depth=True)", "valid integer"), ("respec(theta=1e999)", "finite number"), ("sam(depth=9999999999)", "up to"),
    ("sam@tapout(arms='svip')", "cannot take arms"), ("ar@svip", "drafts nothing"), ("-" * 50_000, "at most 1,000"),
    ("sam@svip(g=1)", "no parameter 'g'")])
def test_values_of_a_wrong_type_are_refused_when_the_spec_is_read(wrong, why):
    with pytest.raises(Refusal, match=why) as error:
        catalog.method_spec(wrong)
    assert len(str(error.value)) < 300


def test_a_whole_number_stands_for_a_fraction_and_a_list_for_a_tuple():
    assert catalog.method_spec("sam@typical(eps=1)").replaced["how"].values == {"eps": 1}
    assert catalog.method_spec("sam@tapout(arms=['svip'])").replaced["when"].values == {"arms": ["svip"]}
