"""The map of the package, from its imports: folders and modules as boxes, an arrow to what each is built on.

    python .ci/package_map.py            # prints the Mermaid picture
    python .ci/package_map.py --write    # puts it into docs/house.md, between the two marks

Arrows that follow from others are left out, and so are values that nearly everything imports (`scores`, `types`).
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIB = ROOT / "specdec_lib"
BEGIN, END = "<!-- map: made by .ci/package_map.py -->", "<!-- end of the map -->"
ONE_BOX = {"when": "rooms: when, what, how", "what": "rooms: when, what, how", "how": "rooms: when, what, how",
           "scores": "core", "types": "core", "dice": "core", "sampling": "core", "exact": "core", "trees": "core",
           "topk": "core", "lattice": "core", "acceptance": "core", "specs": "core", "speculate": "core",
           "parameters": "core", "intervals": "core", "running_fold": "core", "cards": "core", "by_name": "core",
           "files": "core", "collection": "core", "lazy": "core", "sharing": "core",
           "loop": "loop, measure", "measure": "loop, measure",
           "methods": "methods, catalog",
           "catalog": "methods, catalog",
           "figures": "figures, show, explore", "show": "figures, show, explore", "explore": "figures, show, explore",
           "commands": "commands, cli", "cli": "commands, cli", "index": "index, memory",
           "memory": "index, memory", "hub": "hub, checkpoints", "checkpoints": "hub, checkpoints"}


def box(module: str) -> str:
    """The box of a module, by its first name."""
    first = module.split(".")[0]
    return ONE_BOX.get(first, first)


def edges() -> dict[str, set[str]]:
    """Box -> boxes that its files import."""
    found: dict[str, set[str]] = {}
    for path in sorted(LIB.rglob("*.py")):
        if path.parent == LIB and path.name == "__init__.py":
            continue
        mine = box(".".join(path.relative_to(LIB).with_suffix("").parts))
        found.setdefault(mine, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specdec_lib"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                found[mine] |= {box(name.split(".", 1)[1]) for name in names if "." in name} - {mine}
    return found


def below(found: dict[str, set[str]], start: str, without: str = "") -> set[str]:
    """Everything that a box reaches, not counting its own direct arrow to `without`."""
    seen, waiting = set(), [name for name in found[start] if name != without]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += found[name]
    return seen


def picture() -> str:
    """The map as a Mermaid flowchart, only with the arrows that do not follow from others."""
    found = edges()
    direct = {one: sorted(two for two in targets if two not in below(found, one, two))
              for one, targets in found.items()}
    number = {name: f"m{i}" for i, name in enumerate(sorted(found))}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'  {number[name]}["{name}"]' for name in sorted(found)]
    lines += [f"  {number[one]} --> {number[two]}" for one in sorted(direct) for two in direct[one]]
    return "\n".join([*lines, "```"])


def main() -> None:
    if "--write" not in sys.argv:
        print(picture())
        return
    page = ROOT / "docs" / "house.md"
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{picture()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
