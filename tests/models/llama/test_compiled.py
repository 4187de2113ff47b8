"""C code is compiled once, by one process, anew when it is damaged, and left out where it cannot be compiled."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specdec_lib.models.llama import compiled
from specdec_lib.models.llama.compiled import library

ASKED = "from pathlib import Path; import sys; from specdec_lib.models.llama.compiled import library;" \
        " print(library(Path(sys.argv[1])).answer())"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A file of C code in an empty cache, and a compiler that writes a line to `log` when it runs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho run >> {tmp_path}/log\nsleep .2\nexec {shutil.which('cc')} \"$@\"\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    path = tmp_path / "answer.c"
    path.write_text("int answer(void) { return 42; }\n")
    return path


def runs(source: Path) -> int:
    log = source.with_name("log")
    return len(log.read_text().splitlines()) if log.exists() else 0


def in_cache(source: Path) -> list[Path]:
    return sorted((source.parent / "cache" / "specdec").glob("*.so"))


def test_a_library_is_compiled_once_and_again_when_its_source_changes(source):
    assert [library(source).answer(), library(source).answer(), runs(source)] == [42, 42, 1]
    source.write_text("int answer(void) { return 43; }\n")
    assert [library(source).answer(), runs(source), len(in_cache(source))] == [43, 2, 2]


def test_a_library_is_compiled_again_when_a_header_changes_that_it_or_its_header_includes(source):
    source.write_text('#include <stdint.h>\n#include "outer.h"\nint answer(void) { return NUMBER; }\n')
    outer, inner = source.with_name("outer.h"), source.with_name("inner.h")
    outer.write_text('#pragma once\n#include "inner.h"\n#include "outer.h"\n#define NUMBER (INNER + 1)\n')
    inner.write_text("#define INNER 41\n")
    assert [library(source).answer(), library(source).answer(), runs(source)] == [42, 42, 1]
    inner.write_text("#define INNER 42\n")
    assert [library(source).answer(), runs(source)] == [43, 2]
    outer.write_text(outer.read_text().replace("+ 1", "+ 2"))
    assert [library(source).answer(), runs(source), len(in_cache(source))] == [44, 3, 3]
    inner.unlink()
    assert library(source) is None


@pytest.mark.parametrize("damage", [lambda content: content[:-100], lambda content: b"",
                                    lambda content: content[:500] + b"?" + content[501:]], ids=["cut", "empty", "byte"])
def test_a_damaged_library_is_made_again(source, damage):
    library(source)
    (path,) = in_cache(source)
    whole = path.read_bytes()
    path.unlink()                                  # the first one stays mapped
    path.write_bytes(damage(whole))
    assert library(source).answer() == 42
    assert compiled.is_whole(path)
    assert runs(source) == 2


def test_of_two_processes_that_start_together_one_compiles(source):
    both = [subprocess.Popen([sys.executable, "-c", ASKED, str(source)], stdout=subprocess.PIPE, text=True)
            for _ in range(2)]
    assert [process.communicate(timeout=240)[0].strip() for process in both] == ["42", "42"]
    assert runs(source) == 1
    assert not list(source.parent.glob("cache/specdec/.*partial*"))


def test_code_that_cannot_be_compiled_is_left_out(source, monkeypatch):
    source.write_text("#error no\n")
    assert library(source) is None
    assert not in_cache(source)


@pytest.mark.parametrize("cc", ["", "no-such-compiler"])
def test_without_a_compiler_nothing_is_loaded(source, monkeypatch, cc):
    monkeypatch.setenv("CC", cc)
    monkeypatch.setenv("PATH", "")
    assert library(source) is None


def test_a_cache_that_cannot_be_written_is_no_error(source, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(source))            # a file
    assert library(source) is None


def test_a_compiler_may_bring_options(source, monkeypatch):
    source.write_text("int answer(void) { return ANSWER; }\n")
    monkeypatch.setenv("CC", f"{shutil.which('cc')} -DANSWER=7")
    assert library(source).answer() == 7
    assert library(source, "-UANSWER", "-DANSWER=8").answer() == 8


def test_the_source_is_part_of_the_installed_package():
    import tomllib

    root = Path(compiled.__file__).parents[3]
    kept = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    shipped = {path for package, patterns in kept.items() for pattern in patterns
               for path in root.joinpath(*package.split(".")).glob(pattern)}
    assert set((root / "specdec_lib").rglob("*.[ch]")) == shipped
    assert {path.suffix for path in shipped} == {".c", ".h"}
