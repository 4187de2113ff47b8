"""A small world of files for the fuzzer, and ways to damage them. The commands and options come from typer itself."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch
import typer
from hypothesis import strategies as st

from specdec_lib import cli

LEFT_OUT = ("lab", "site", "notebook", "gpu", "digits")      # JupyterLab, notebooks in kernels, minutes of decoding
HOSTILE = (None, True, -1, 0, 3, 1.5, 10**30, float("inf"), float("nan"), "", "x", "\ud800", "../../up", [], {}, [1],
           {"a": 1}, [[[]]], "<b>")
WORDS = ("", " ", "x", "-", "--", "²", "None", "1.5", "../up", "a/b", "😀", "'", "(", "ar", "," * 9, "9" * 40)
WHOLE = ("-1", "0", "1", "2", "3", "x", "1.5", "", "²", "9" * 30, "1e3", "nan")
REAL = ("0", "1", "0.5", "-1", "inf", "nan", "1e400", "1e-320", "x", "", "9" * 400)
INSTEAD = (b"", b"\xff\xfe\x00", b"[" * 100_000, b"null", b"{}", b"[]", b'"x"', b"1", b"{\n")
METHODS = ("ar", "sam", "sam(depth=2)", "draft-model", "token-recycling", "prompt-lookup@fixed(depth=1)", "respec",
           "draft-model@svip", "sam@typical", "eagle", "eagle2", "early-exit", "specdiff", "sam(depth=True)", "ar@svip",
           "sam@tapout(arms=['x'])", "sam()()", "sam(", "nope", "sam(depth='x')", "draft-model@typical(eps=[1])",
           "sam(depth=None)", "token-recycling(width=0)", "respec(theta=-1)", "-" * 5000, "@", "ar,ar", ",")
# Values that would run for minutes are left out; an option that is not named here takes whatever its type takes.
POOLS = {"method": METHODS, "methods": (*METHODS, "ar,sam", "ar,draft-model,respec"),
         "compare": ("ar,sam", "ar", "", "ar,ar", "ar,sam(", "sam,draft-model"), "peers": ("", "hf-generate", "x"),
         "repeats": ("-1", "0", "1", "x"), "nodes": ("-1", "0", "1", "8", "x"), "minutes": ("0.001", "0", "nan", "inf"),
         "seconds": ("0.01", "0", "-1", "nan", "inf", "x"),
         "kind": ("spec-bench", "speculators", "csv", ""),
         "tokens": ("300", "0", "-5", "x", "²", "300,", "1", "9" * 40), "contexts": ("8", "0", "²", "x", "9999999"),
         "max_new_tokens": ("1", "3", "0", "-1", "x", "9" * 30), "device": ("cpu", "auto", "tpu", "cuda:99", ""),
         "dtype": ("float32", "auto", "float64", "int3", "fp32", ""), "threads": ("1", "0", "-1", "100000", "x"),
         "orders": ("file", "shuffled", "file,shuffled", "x", ""), "positions": ("-1", "0", "9", "x"),
         "drafters": ("", "prompt-lookup", "a/b=prompt-lookup", "draft-model", "x", "=", "eagle", "eagle,eagle"),
         "world": ("table", "chess", ""), "address": ("", "x", "1.5", "http://a:1"),
         "rules": ("ssd", "stepwise,tolerator(forwards=3)", "vote", "ssd(rows=-1)", "ar", "ssd,ssd", "",
                   "parallel(k=True)", "threshold(theta=2.0)", "ssd("),
         "names": ("eagle", "ngram", "draft-lm", "early-exit", "length-predictor", "h-rad", "diffusion-lm", "x",
                   ""), "prompt": ("a b c", "", " ", "-", "red " * 99, "😀", "-x"),
         "cache_gb": ("0.001", "-1", "nan", "inf", "x"), "longest": ("3", "0", "-1", "101", "x")}
USUAL = {"methods": "ar,draft-model,sam", "target": "model", "cost": "curve.json",
         "prompts": "prompts.jsonl", "data": "data.jsonl", "limit": "2", "peers": "",
         "max_new_tokens": "3", "threads": "1", "world": "table",
         "rules": "ssd,tolerator(forwards=3)", "minutes": "0.001", "tokens": "300", "repeats": "1", "contexts": "8",
         "sources": "data.jsonl", "dtype": "float32", "prompt": "a b c", "names": "ngram", "checkpoints": "shelf",
         "run": "run", "runs": "run", "seconds": "0.01", "grid": "grid.yaml"}
FILES = {"target": "model", "draft": "draft", "diffusion": "model", "eagle": "model",
         "prompts": "prompts.jsonl", "cost": "curve.json",
         "store": "a.store", "checkpoints": "shelf", "data": "data.jsonl", "forbid": "prompts.jsonl",
         "parameters": "values.yaml", "grid": "grid.yaml",
         "sources": "data.jsonl", "run": "run", "runs": "run"}
BEGUN = "begun"                                    # a bench that was stopped after its first prompt
OUTS = {"bench": "run", "report": "run", "record": "recordings", "train": "shelf", "store": "a.store",
        "cost": "curve.json", "overhead": "curve.json", "canvas": "filled", "sweep": "swept"}


def commands() -> dict[str, list]:
    """The parameters of every command, as typer describes them."""
    group = typer.main.get_command(cli.app)
    return {name: command.params for name, command in group.commands.items() if name not in LEFT_OUT}


@dataclass(frozen=True)
class Case:
    """A command's name, its parameters with their words, and what is done to which file before it runs."""

    command: str
    given: tuple[tuple[object, str], ...]
    damage: tuple[tuple[str, int], ...] = ()       # name of a file or folder, seed of the damage
    earlier: str = ""                              # which earlier result --out holds, if any
    stdin: str = "a b"

    def __repr__(self) -> str:
        said = [(param.name, word) for param, word in self.given]
        return f"Case({self.command!r}, {said}, {self.damage}, {self.earlier!r})"


@st.composite
def cases(draw) -> Case:
    """Any command with any of its options; most of the files are whole, so that many cases come far."""
    command = draw(st.sampled_from(sorted(commands())))
    known = [param for param in commands()[command] if param.name not in ("help", "out")]
    odd = draw(st.lists(st.sampled_from(range(len(known))), max_size=3, unique=True)) if known else []
    given = [(param, draw(word_for(param)) if place in odd else USUAL[param.name])
             for place, param in enumerate(known) if place in odd or param.name in USUAL]
    results = {"": 0, OUTS.get(command, ""): 0, BEGUN if OUTS.get(command) == "run" else "": 0}
    earlier = draw(st.sampled_from(list(results)))
    places = sorted({word for _, word in given if word in FILES.values()} | ({earlier} if earlier else set()))
    chosen = draw(st.lists(st.sampled_from(places), max_size=2, unique=True)) if places else []
    damage = tuple((name, draw(st.integers(0, 10**6))) for name in chosen)
    return Case(command, tuple(given), damage, earlier, draw(st.sampled_from(WORDS)))


NOT_TAKEN = {("canvas", "checkpoints")}            # the table world has no model


def usual(command: str) -> Case:
    """The command as it runs to its end."""
    return Case(command, tuple((param, USUAL[param.name]) for param in commands()[command]
                               if param.name in USUAL and (command, param.name) not in NOT_TAKEN))


def word_for(param) -> st.SearchStrategy[str]:
    """Words for a parameter: of its pool, the name of a file, or by its type."""
    if param.name in FILES:
        return st.sampled_from([FILES[param.name], "nowhere", "", "/", "owner/model", "x\0y", *FILES.values()])
    described = getattr(param, "type_descriptor", None) or param.type     # typer's own, in older releases click's
    kind = str(getattr(described, "annotation", described)).lower()
    by_type = WHOLE if "int" in kind else REAL if "float" in kind else WORDS
    return st.sampled_from(POOLS.get(param.name, by_type))


def words_of(case: Case) -> list[str]:
    """The command line of a case, run in the folder of its files."""
    options, behind = [], []
    for param, word in case.given:
        if getattr(param, "is_flag", False):
            options.append(param.opts[0])
        elif param.param_type_name == "argument":
            behind.append(word)
        else:
            options += [param.opts[0], word]
    out = ["--out", "out"] if any(param.name == "out" for param in commands()[case.command]) else []
    return [case.command, *options, *out, *behind]


def lay_out(case: Case, world: Path, here: Path) -> None:
    """Copies the world into `here`, an earlier result into `out` where there is one, and damages what the case says."""
    shutil.copytree(world, here)
    for name, seed in case.damage:
        damage(here / name, random.Random(seed))
    source = here / (case.earlier or "none")
    if source.exists():
        (shutil.copytree if source.is_dir() else shutil.copy)(source, here / "out")


def damage(path: Path, dice: random.Random) -> None:
    """Damages one file, or one file in a folder, in one of many ways."""
    inner = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    if path.is_dir() and (not inner or dice.random() < 0.1):
        shutil.rmtree(path)
        path.write_bytes(b"a file\n")
        return
    path = dice.choice(inner)
    data = path.read_bytes()
    how = dice.randrange(9)
    if how == 0:
        path.unlink()
    elif how == 1:
        path.unlink()
        path.mkdir()
    elif how == 2:
        path.write_bytes(data[:dice.randrange(len(data) + 1)])
    elif how == 3 and data:
        place = dice.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1:])
    elif how == 4:
        path.write_bytes(dice.choice(INSTEAD))
    elif path.suffix in (".json", ".jsonl"):
        rewrite(path, data, dice)
    else:
        path.write_bytes(bytes(dice.randrange(256) for _ in range(64)) + data[64:])


def rewrite(path: Path, data: bytes, dice: random.Random) -> None:
    """Replaces one value somewhere in a JSON file, or in one line of a JSON-lines file."""
    lines = data.decode().splitlines() if path.suffix == ".jsonl" else [data.decode()]
    place = dice.randrange(len(lines))
    lines[place] = json.dumps(changed(json.loads(lines[place]), dice))
    path.write_text("\n".join(lines) + "\n")


def changed(value, dice: random.Random):
    """The value with one leaf or branch replaced by something hostile, or taken out."""
    if isinstance(value, dict | list) and value and dice.random() < 0.85:
        key = dice.choice(sorted(value)) if isinstance(value, dict) else dice.randrange(len(value))
        copy = value.copy()
        if dice.random() < 0.2:
            del copy[key]
        else:
            copy[key] = changed(value[key], dice)
        return copy
    return dice.choice(HOSTILE)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes; folders with None."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
            for path in sorted(folder.rglob("*"))}


def run_in(folder: Path, words: list[str], stdin: str) -> tuple[int, str, str]:
    """Runs the command in this process and folder: exit code, stdout, stderr. An unexpected exception goes through."""
    out, err, before, threads = io.StringIO(), io.StringIO(), Path.cwd(), torch.get_num_threads()
    kept = sys.stdin
    os.chdir(folder)
    sys.stdin = io.StringIO(stdin)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.run(words)
    finally:
        sys.stdin = kept
        os.chdir(before)
        torch.set_num_threads(threads)
    return code, out.getvalue(), err.getvalue()
