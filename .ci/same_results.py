"""Do two checkouts compute the same? Compares runs by token ids and executed notebooks by the numbers they show.

    python .ci/same_results.py runs BEFORE AFTER          # folders of finished `specdec bench` runs
    python .ci/same_results.py notebooks BEFORE AFTER     # folders of notebooks executed by papermill

A run is compared decode by decode: the ids, and per round the tokens drafted and accepted. A notebook is compared by
every number in its tables, texts and figures, in order. Prints one line a file; exit code 1 where anything differs.
"""

import json
import re
import sys
from html import unescape
from pathlib import Path

import pandas as pd

NUMBER = re.compile(r"(?<![\w.])[-−+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
KEYS = ["method", "question_id", "turn", "repeat"]


def decodes(folder: Path) -> dict:
    """(method, question, turn, repeat) -> ids, and drafted and accepted tokens of every round."""
    ids = pd.read_parquet(folder / "decodes.parquet").set_index(KEYS)["tokens"]
    rounds = pd.read_parquet(folder / "rounds.parquet").groupby(KEYS)[["drafted", "accepted"]].agg(list)
    return {key: (list(tokens), *rounds.loc[key].tolist()) for key, tokens in ids.items()}


def numbers(notebook: Path) -> list[str]:
    """Every number that the outputs of a notebook show."""
    found: list[str] = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "application/vnd.plotly.v1+json" in data:
                found += map(repr, plotted(data["application/vnd.plotly.v1+json"]["data"]))
            else:
                text = "".join(data.get("text/html", data.get("text/plain", output.get("text", ""))))
                found += NUMBER.findall(unescape(re.sub(r"<style.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)))
    return found


def plotted(value) -> list[float]:
    """The numbers of a figure's traces, in order."""
    if isinstance(value, dict):
        return [number for key in ("x", "y", "z", "error_x", "error_y", "array", "arrayminus")
                for number in plotted(value.get(key, ()))]
    if isinstance(value, list | tuple):
        return [number for one in value for number in plotted(one)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def compare(read, names, before: Path, after: Path) -> bool:
    """Whether both sides hold the same under each of these names; a line for each."""
    same = True
    for name in names:
        old, new = read(before / name), read(after / name)
        if isinstance(old, dict):
            apart = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            print(f"{name}: {len(old)} decodes before, {len(new)} after, {len(apart)} differ", *apart[:5])
        else:
            apart = [(a, b) for a, b in zip(old, new, strict=False) if a != b]
            print(f"{name}: {len(old)} numbers before, {len(new)} after, {len(apart)} differ", *apart[:5])
        same &= not apart and len(old) == len(new)
    return same


def main() -> None:
    kind, before, after = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if kind == "runs":
        names = sorted(path.parent.name for path in before.glob("*/decodes.parquet"))
        sys.exit(not compare(decodes, names, before, after))
    sys.exit(not compare(numbers, sorted(path.name for path in before.glob("*.ipynb")), before, after))


if __name__ == "__main__":
    main()
