"""YAML as plain data, with the line on which every value begins, so that a refusal can name it.

Only plain data is made: no tag makes an object. A key that stands twice and an alias (`*name`) are refused, since YAML
would drop the first in silence and repeat the second without end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_lib.types import Refusal

DEEPEST = 20                                       # levels of a grid's file; reading takes the square of them
Place = tuple[str | int, ...]                      # keys and indices from the top of a file down to a value


def read_yaml(path: Path) -> tuple[Any, dict[Place, int]]:
    """The data of a file, and the line, from 1, of each of its values; a key's line counts for its value.

    Refusal naming the file and the line for what is not YAML.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise Refusal(f"there is no file {path}: check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{path} cannot be read as UTF-8 text ({type(error).__name__}): give a readable file") from None
    lines: dict[Place, int] = {}
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise Refusal(f"{path}, line {event.start_mark.line + 1}: aliases are not read, write the value again")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise Refusal(f"{path}, line {event.start_mark.line + 1}: this is nested too deeply to be a grid:"
                              " write the values of an axis in one list")
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return (None if node is None else _plain(loader, node, (), lines, path)), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise Refusal(f"{path}, line {line}: this is not YAML ({error.problem or error.context}): write one `key:"
                      " value` on each line, as in data/sweeps/small.yaml") from None
    except yaml.YAMLError as error:
        raise Refusal(f"{path} is not YAML ({str(error).splitlines()[0]}): write one `key: value` on each line, as in"
                      " data/sweeps/small.yaml") from None


def _plain(loader: Any, node: Any, place: Place, lines: dict[Place, int], path: Path) -> Any:
    import yaml

    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in node.value):
            raise Refusal(f"{path}, line {lines[place]}: this is no text, it has a zero byte or half a character")
        try:
            return loader.construct_object(node)
        except (ValueError, OverflowError):        # `!!int x`, or a date that does not exist
            raise Refusal(f"{path}, line {lines[place]}: {node.value!r} is no value of its kind") from None
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, one, (*place, index), lines, path) for index, one in enumerate(node.value)]
    out: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise Refusal(f"{path}, line {line}: a key is a word: write one `key: value`")
        key = key_node.value
        if key in out:
            raise Refusal(f"{path}, line {line}: the key {key!r} stands twice: write it once")
        lines[*place, key] = line
        out[key] = _plain(loader, value_node, (*place, key), lines, path)
    return out


def line_of(place: Sequence[str | int], lines: Mapping[Place, int]) -> int:
    """The line of the value at this place, or of the nearest value around it.

    An index that the file lacks is passed over: one value may stand for a list of one.
    """
    known: Place = ()
    for step in place:
        if (*known, step) in lines:
            known = (*known, step)
        elif not isinstance(step, int):
            break
    return lines.get(known, 1)
