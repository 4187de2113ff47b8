"""The ways in: pyproject, constraints, conda and make agree, and what they say is what they do."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from specdec_lib.hub import default_model, locate

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DIRECT = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["test"]
BUILD = PROJECT["build-system"]["requires"]
CUDA = re.compile(r"^(nvidia-|cuda-|triton)")      # what a CUDA build of torch brings along is its own affair


def pins() -> dict[str, str]:
    """Package -> version, from the constraints file."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def needed(requirements: list[str]) -> set[str]:
    """Names of all packages that these requirements bring into this environment, step by step."""
    found: set[tuple] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        this = waiting.pop()
        name = canonicalize_name(this.name)
        extras = ["", *this.extras]
        if CUDA.match(name) or (name, *extras) in found:
            continue
        found.add((name, *extras))
        try:
            inner = [Requirement(text) for text in distribution(name).requires or ()]
        except PackageNotFoundError:
            continue
        for one in inner:
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras):
                one.marker = None
                waiting.append(one)
    return {name for name, *_ in found}


def make(*words: str, **env: str) -> subprocess.CompletedProcess:
    command = ["make", "-C", str(ROOT), "--no-print-directory", *words]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, capture_output=True, text=True, env={**plain, **env}, timeout=240)


def steps(target: str) -> str:
    """What make would do for a target, without doing it."""
    done = make("--dry-run", target)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_conda_brings_the_dependencies_of_pyproject_at_the_pinned_versions():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    [pip] = [entry["pip"] for entry in conda if isinstance(entry, dict)]
    assert sorted(pip) == sorted(["-c constraints.txt", *DIRECT, "-e ."])
    assert f"python{PROJECT['project']['requires-python']}" in conda


@pytest.mark.parametrize("text", DIRECT + BUILD)
def test_what_is_tested_lies_in_the_range_that_is_promised(text):
    requirement = Requirement(text)
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_no_dependency_is_named_twice():
    names = [canonicalize_name(Requirement(text).name) for text in DIRECT]
    assert sorted(set(names)) == sorted(names)


def test_everything_that_comes_along_is_pinned_too():
    assert needed(DIRECT) - set(pins()) == set()


def test_pins_are_versions_and_nothing_else():
    assert all(re.fullmatch(r"[\w.]+", version) for version in pins().values())    # no build tag


def test_the_tests_of_a_change_are_make_test_and_a_sample_in_a_browser():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines == ["#!/usr/bin/env bash", "set -euo pipefail", 'cd "$(dirname "$0")/.."', "make test",
                     "make test-browser-sample"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def install(tmp_path, configured: str = "", without: str = "") -> tuple[int, list[str]]:
    """Exit code of .ci/install with a Python that notes what it is asked for and fails at the words `without`."""
    asked, python = tmp_path / "asked", tmp_path / "python"
    python.write_text(f"""#!/bin/sh
echo "$*" >> "{asked}"
case "$*" in
    *config*) echo "{configured}" ;;
    {without or "none"}*) exit 1 ;;
esac
""")
    python.chmod(0o755)
    done = subprocess.run(["sh", ".ci/install", str(python), "-e", ".[test]"], cwd=ROOT, timeout=120)
    return done.returncode, [line.split("-m ")[1][:6] for line in asked.read_text().splitlines()
                             if line.endswith(".[test]")]


@pytest.mark.parametrize(("configured", "without", "tried"), [
    ("global.extra-index-url='file:///wheels'", "", ["uv pip"]),            # pip's extra wheels are for torch
    ("global.index-url='https://mirror'", "", ["pip in"]),                  # a mirror that uv knows nothing about
    ("", "-m\\ pip\\ install*uv", ["pip in"]),                              # no uv for this machine
    ("", "-m\\ uv", ["uv pip", "pip in"])])                                 # no way to its index
def test_uv_installs_and_where_it_cannot_pip_does(configured, without, tried, tmp_path):
    assert install(tmp_path, configured, without) == (0, tried)


def test_an_installation_that_nothing_can_do_fails(tmp_path):
    assert install(tmp_path, without="-m") == (1, ["pip in"])


def test_the_installer_is_pinned_too():
    assert "uv" in pins()


@pytest.mark.parametrize("target", ["report", "test", "test-fast", "test-long", "test-browser", "test-browser-sample",
                                    "site", "lab"])
def test_every_door_sets_up_first(target):
    assert "smollm2-135m" in steps(target)           # the last step of the set-up is the model


def test_the_doors_open_on_what_they_are_named_after():
    assert "specdec report" in steps("report")
    assert "specdec lab" in steps("lab")
    assert "specdec site" in steps("site")
    assert "-m browser" in steps("test-browser")
    assert 'not long and not browser"' in steps("test")
    assert "not notebooks" not in steps("test")
    assert "not notebooks" in steps("test-fast")


def test_help_lists_every_target_and_nothing_else():
    makefile = (ROOT / "Makefile").read_text()
    shown = dict(line.split(maxsplit=1) for line in make("help").stdout.splitlines())
    assert {"report", "test", "test-long", "model", "lab", "help"} <= set(shown)
    assert set(shown) == set(re.findall(r"^([a-z][a-z-]*):(?! *=)", makefile, re.M))
    assert set(shown) == set(re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split())


def test_what_each_kind_of_test_runs_is_said_in_one_place():
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    kinds = {name for name in re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M) if "test" in name}
    told = [name for row in rows for name in re.findall(r"`make (test[a-z-]*)`", row)]
    assert sorted(told) == sorted(kinds - {"test-browser-sample"})          # in the row of the whole


def test_a_machine_without_chromium_is_told_so_and_the_sample_does_not_fail_for_it(tmp_path):
    none = subprocess.run([sys.executable, "-m", "tests.chromium"], capture_output=True, text=True, timeout=120,
                          cwd=ROOT, env={**os.environ, "PATH": str(tmp_path)})
    assert none.returncode == 1
    assert none.stderr == "no Chromium on this machine: apt-get install chromium, or your system's package of it\n"
    chosen = "\n".join(steps("test-browser-sample").splitlines()[-2:])
    assert chosen.count(".venv/bin/python") == 2
    done = subprocess.run(["sh", "-c", chosen.replace(".venv/bin/python", "false")], capture_output=True, text=True,
                          timeout=120)
    assert (done.returncode, done.stdout.count("did not run")) == (0, 1)


def test_make_and_the_library_agree_on_where_the_default_model_is():
    makefile = (ROOT / "Makefile").read_text()
    folder = re.search(r"^MODEL +:= \$\(CACHE\)/(\S+)/manifest.json$", makefile, re.M)[1]
    assert folder == f"{locate.DEFAULT}-{default_model.SHA256[:8]}"


def test_clean_cache_says_what_it_removes_and_removes_only_that(tmp_path):
    home = tmp_path / "a cache"
    for name in ("specdec/smollm2", "another"):
        (home / name).mkdir(parents=True)
    done = make("clean-cache", XDG_CACHE_HOME=str(home))
    assert f"removing {home}/specdec" in done.stdout
    assert "smollm2" in done.stdout
    assert [path.name for path in home.iterdir()] == ["another"]


def test_clean_cache_is_content_when_there_is_nothing(tmp_path):
    done = make("clean-cache", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0
    assert "nothing to remove" in done.stdout


def test_a_machine_without_a_fitting_python_is_told_what_to_install(tmp_path):
    done = subprocess.run(["/bin/sh", str(ROOT / ".ci" / "python")], capture_output=True, text=True,
                          env={"PATH": str(tmp_path)}, timeout=120)
    assert done.returncode == 1
    assert "3.11 or newer" in done.stderr


def test_an_old_python_is_passed_over(tmp_path):
    for name, answer in (("python3.11", 1), ("python3", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {answer}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(["/bin/sh", str(ROOT / ".ci" / "python")], capture_output=True, text=True,
                          env={"PATH": str(tmp_path)}, timeout=120)
    assert done.stdout.strip() == "python3"
