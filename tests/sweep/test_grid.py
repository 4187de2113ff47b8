"""Grids: every mistake is one sentence with the line that it stands on, before anything runs."""

import pytest

from specdec_lib import catalog
from specdec_lib.sweep.grid import read_grid
from specdec_lib.sweep.specs import swept_specs, whole_parameters
from specdec_lib.sweep.yaml_lines import read_yaml
from specdec_lib.types import Refusal

HEAD = "mode: counting\nmethods:\n  - ar\n"


def grid(folder, text):
    path = folder / "grid.yaml"
    path.write_text(text)
    return read_grid(path)


def refused(folder, text) -> str:
    with pytest.raises(Refusal) as caught:
        swept_specs(grid(folder, text))
    said = str(caught.value)
    assert "\n" not in said
    return said.removeprefix(f"{folder / 'grid.yaml'}")


def test_a_name_alone_is_an_axis_of_one_and_defaults_are_filled_in(tmp_path):
    found = grid(tmp_path, HEAD + "seeds: 3\nprompts: {limit: 2}\n").grid
    assert [one.method for one in found.methods] == ["ar"]
    assert (found.seeds, found.temperatures, found.targets) == ([3], [0.0], ["smollm2-135m"])
    assert found.prompts[0].limit == 2


@pytest.mark.parametrize(("more", "line", "word"), [
    ("seed: 3\n", 4, "no key 'seed'"),
    ("\n# a comment\nseeds: [0, x]\n", 6, "seeds.1"),
    ("seeds: [1, 1]\n", 4, "1 stands twice"),
    ("temperatures: [0.0, -1.0]\n", 4, "temperature"),
    ("temperatures: .nan\n", 4, "finite"),
    ("max_new_tokens: 0\n", 4, "greater than or equal to 1"),
    ("max_new_tokens: true\n", 4, "valid integer"),
    ("dtypes: int3\n", 4, "no dtype named 'int3'"),
    ("device: tpu\n", 4, "no device named 'tpu'"),
    ("prompts:\n  - limit: 2\n  - familys: [qa]\n", 6, "no key 'familys'"),
    ("prompts:\n  limit: 0\n", 5, "limit"),
    ("cores: 2\n", 4, "cores is for mode: timing"),
    ("repeats: 3\n", 4, "repeats is for mode: timing"),
    ("seeds: 1\nseeds: 2\n", 5, "the key 'seeds' stands twice"),
    ("seeds: &a 1\ncores: *a\n", 5, "aliases are not read"),
    ("seeds: [0\n", 5, "not YAML"),
    ("seeds: 2026-99-99\n", 4, "no value of its kind"),
    ('draft: "a\\0b"\n', 4, "zero byte"),
    ("? [a]\n: 1\n", 4, "a key is a word"),
    ("  - nope\n", 4, "no method named 'nope'"),
    ("  - sam(depth=\n", 4, "not a name with parameters"),
    ("  - method: sam\n    parameters:\n      depht: [1]\n", 6, "sam has no parameter 'depht'"),
    ("  - method: sam\n    parameters:\n      depth:\n        - 2\n        - two\n", 8, "sam cannot take depth='two'"),
    ("  - method: sam\n    parameters:\n      depth: []\n", 6, "depth has no values"),
    ("  - method: sam\n    parameters:\n      depth: [2, 2]\n", 6, "2 stands twice"),
    ("  - method: sam(depth=2)\n    parameters:\n      depth: 3\n", 6, "already sets depth"),
    ("  - method: sam\n    parameters: {svip.h: 0.1}\n", 5, "which sam does not name behind an @"),
    ("  - method: sam\n    params: {}\n", 5, "no key 'params' here; there are method"),
    ("  - 5\n", 4, "methods.1")])
def test_a_mistake_is_named_with_its_line(more, line, word, tmp_path):
    said = refused(tmp_path, HEAD + more)
    assert said.startswith(f", line {line}: "), said
    assert word in said, said


@pytest.mark.parametrize(("more", "line", "word"), [
    ("dtypes: float32\n", 1, "`specdec cost --target smollm2-135m --dtype float32 --out curve.json`"),
    ("cost: x\ntargets: [one, two]\n", 5, "takes one of targets, that of its cost curve: write a grid for each"),
    ("cost: x\ndtypes: [float32, float64]\n", 5, "takes one of dtypes, that of its cost curve")])
def test_a_timed_grid_has_the_one_curve_that_its_node_budgets_come_from(more, line, word, tmp_path):
    said = refused(tmp_path, HEAD.replace("counting", "timing") + more)
    assert said.startswith(f", line {line}: mode: timing "), said
    assert word in said, said


def test_auto_is_what_its_target_takes_and_refused_where_targets_take_others(tmp_path, monkeypatch):
    taken = {"one": "bfloat16", "two": "float32"}
    monkeypatch.setattr("specdec_lib.sweep.grid.dtype_of",
                        lambda name, device, target="": taken[target] if name == "auto" else name)
    assert grid(tmp_path, HEAD + "targets: two\n").grid.dtypes == ["auto"]                    # each cell takes its own
    assert grid(tmp_path, HEAD + "targets: two\ndtypes: auto\n").grid.dtypes == ["float32"]
    assert grid(tmp_path, HEAD + "targets: one\ndtypes: [auto, float64]\n").grid.dtypes == ["bfloat16", "float64"]
    said = refused(tmp_path, HEAD + "targets: [one, two]\ndtypes: [auto]\n")
    assert "dtypes: auto is bfloat16 for one and float32 for two: name the dtypes" in said


def test_the_first_of_several_mistakes_is_named(tmp_path):
    assert refused(tmp_path, "mode: counting\nseeds: x\nmethods: ar\nthreads: 2\n").startswith(", line 2: seeds")


@pytest.mark.parametrize("text", ["", "5\n", "[]\n", "methods: ar\n", "mode: counting\n", "mode: fast\nmethods: ar\n",
                                  "mode: counting\nmethods: []\n", "[" * 5000, "a: b: c\n", "\ta\n"])
def test_what_is_no_grid_is_refused_in_a_sentence(text, tmp_path):
    assert refused(tmp_path, text)


def test_a_missing_file_and_one_that_is_not_text_are_refused(tmp_path):
    with pytest.raises(Refusal, match="there is no file"):
        read_grid(tmp_path / "none.yaml")
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Refusal, match="cannot be read as UTF-8"):
        read_grid(tmp_path / "x.yaml")


def test_yaml_makes_plain_data_and_no_objects(tmp_path):
    (tmp_path / "x.yaml").write_text("a: !!python/object/apply:os.system [exit]\nb: !x 5\n")
    with pytest.raises(Refusal, match="line 2"):
        read_yaml(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text("a:\n  - {b: 1.5}\n  - null\n")
    assert read_yaml(tmp_path / "x.yaml") == ({"a": [{"b": 1.5}, None]},
                                              {(): 1, ("a",): 1, ("a", 0): 2, ("a", 0, "b"): 2, ("a", 1): 3})


def test_parameters_are_combined_and_those_of_a_part_have_its_name(tmp_path):
    found = swept_specs(grid(tmp_path, HEAD + "  - method: draft-model@svip\n    parameters:\n      depth: [1, 2]\n"
                                              "      svip.h: [0.1, 0.2]\n"))
    assert [str(one.spec) for one in found] == ["ar"] + [f"draft-model(depth={k})@svip(h={h})" for k in (1, 2)
                                                         for h in (.1, .2)]
    assert found[2].named == {"depth": 1, "svip.h": .2}
    alike = "  - {method: sam+eagle2+trigger@match, parameters: {match: 2}}\n"       # a parameter named as the part
    assert str(swept_specs(grid(tmp_path, HEAD + alike))[1].spec) == "sam+eagle2+trigger(match=2)@match"


def test_a_whole_number_for_a_real_one_is_the_same_setting():
    one, same, other = (whole_parameters(catalog.method_spec(f"eagle@svip(h={h})")) for h in ("1", "1.0", "2"))
    assert one == same != other
    assert isinstance(one["svip.h"], float)
    assert isinstance(whole_parameters(catalog.method_spec("eagle"))["depth"], int)
