"""A YAML file of parameters, as papermill takes one: `name: value` on each line, lists for what takes several.

Values are read as the words that a command line would hold, so both go through the same checks.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple

from specdec_lib.types import Refusal

NULL = "tag:yaml.org,2002:null"                    # a name without a value leaves the default


class GivenWord(NamedTuple):
    """A value as text, and the line where its name stands, counted from 1."""

    text: str
    line: int


def read_parameters(path: Path) -> dict[str, GivenWord]:
    """Name -> word; a list becomes words with commas between. Refusal, with the line, for anything else."""
    import yaml

    try:
        top = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise Refusal(f"the parameters {path} cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise Refusal(f"{path}{f', line {mark.line + 1}' if mark else ''}: this is not YAML, write one"
                      " `name: value` on each line") from None
    if top is None:
        return {}
    if not isinstance(top, yaml.MappingNode):
        raise Refusal(f"{path} holds no parameters by name: write one `name: value` on each line")
    found: dict[str, GivenWord] = {}
    for key, value in top.value:
        line = key.start_mark.line + 1
        name = str(key.value).replace("-", "_")
        if name in found:
            raise Refusal(f"{path}, line {line}: {name} is given a second time: give it once")
        parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if not all(isinstance(part, yaml.ScalarNode) for part in (key, *parts)):
            raise Refusal(f"{path}, line {line}: {name} takes a text, a number or a list of them")
        if value.tag != NULL:
            found[name] = GivenWord(",".join(part.value for part in parts), line)
    return found


def split_parameters(given: Mapping[str, GivenWord], options: Container[str],
                     path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The words for options of the command, and those for the report notebook; Refusal for an unknown name."""
    mine = {name: word.text for name, word in given.items() if name in options}
    rest = {name: word for name, word in given.items() if name not in options}
    if rest:
        from specdec_lib.commands import notebook_runner
        from specdec_lib.commands.report import report_notebook

        known = [name for name in notebook_runner.parameters(report_notebook()) if name != "run"]
        for name, word in rest.items():
            if name not in known:
                raise Refusal(f"{path}, line {word.line}: there is no parameter {name!r}; the notebook has"
                              f" {', '.join(known)}, and --help lists the options of `specdec report`")
    return mine, {name: word.text for name, word in rest.items()}
