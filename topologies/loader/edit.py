"""Change one value in a topology's YAML text and leave every other character as it is. Pure functions.

PyYAML's nodes say where each value stands, so only the value's own characters are replaced, or a key is added beside
its siblings. Comments, order, quotes and line breaks stay, also inside flow mappings over several lines, which a
round-trip writer would set again. Every edit is proven before it is returned: the new text, read again, must differ
from the old in the one value only.

A mapping that other places share by an anchor is not changed: the place gets a mapping of its own that merges the
shared one, ``{<<: *a-year, containers: 30d}``.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from fairlead.errors import ConfigurationError
from topologies.loader.positions import read_yaml

_ALIAS: Final = re.compile(r"\s*:\s*(\*[^\s,\[\]{}]+)")  # what follows a key whose value is an alias
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

Keys = tuple[str, ...]


class EditError(ConfigurationError):
    """The text cannot be changed in this way without touching something else; nothing was changed."""


class _Change(NamedTuple):
    """The replacement of ``text[start:end]``."""

    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


def set_value(text: str, path: Keys, value: str, *, file: str = "the topology") -> str:
    """Return the text with ``value``, a text, at ``path``; keys on the way that are missing are added.

    Args:
        text: A topology that can be read (``read_yaml`` finds no mistake).
        file: The file's name, for the error.

    Raises:
        EditError: only a change by hand can do it; the hint has the lines to write.
    """
    before = read_yaml(text, file)
    wanted = _with_value(before.data, path, value)
    if wanted is not None and not before.mistakes:
        for change in _candidates(text, path, value):
            new = change.apply(text)
            after = read_yaml(new, file)
            if not after.mistakes and after.data == wanted:
                return new
    raise EditError(
        f"{file} is written in a way in which {'.'.join(path)} cannot be set without changing something else",
        hint=f"write it by hand: {_nested(path, value)}",
        path=".".join(path),
    )


def _with_value(data: Any, path: Keys, value: str) -> Any:
    """Return a copy of the data with the value; None if something on the way is no mapping."""
    wanted = copy.deepcopy(data)
    parent = wanted
    for key in path[:-1]:
        if not isinstance(parent, dict):
            return None
        if parent.get(key) is None:
            parent[key] = {}
        parent = parent[key]
    if not isinstance(parent, dict):
        return None
    parent[path[-1]] = value
    return wanted


def _candidates(text: str, path: Keys, value: str) -> Iterator[_Change]:
    """Yield the changes that may do it, the best looking first; each must still be proven."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    uses = _uses(node)
    for depth, name in enumerate(path):
        if not isinstance(node, MappingNode):
            return
        entry = next(
            ((key, each) for key, each in node.value if isinstance(key, ScalarNode) and key.value == name), None
        )
        rest = path[depth + 1 :]
        if entry is None:
            yield from _added(text, node, _nested(path[depth:], value))
            return
        key, child = entry
        start, end = _extent(text, key, child)
        if isinstance(child, ScalarNode) and child.style in ("|", ">"):
            return  # its extent has the comments that follow it
        if not rest or _is_null(child):
            gap = " " if start == end else ""
            yield _Change(start, end, gap + (_flow(rest, value) if rest else _scalar(value)))
            if not rest and "\n" in text[key.end_mark.index : start]:  # a block below its key
                colon = text.index(":", key.end_mark.index) + 1
                yield _Change(colon, len(text[:end].rstrip()), f" {_scalar(value)}")
            return
        if uses[id(child)] > 1:
            yield _Change(start, end, f"{{<<: {text[start:end]}, {_nested(rest, value)}}}")
            return
        node = child


def _uses(root: Node | None) -> Counter[int]:
    """Count how often each node of the graph stands in it: more than once if it has aliases."""
    uses: Counter[int] = Counter()
    todo = [root] if root is not None else []
    while todo:
        node = todo.pop()
        uses[id(node)] += 1
        if uses[id(node)] > 1:
            continue
        if isinstance(node, SequenceNode):
            todo.extend(node.value)
        elif isinstance(node, MappingNode):
            todo.extend(each for pair in node.value for each in pair)
    return uses


def _extent(text: str, key: Node, child: Node) -> tuple[int, int]:
    """Return where the value of a key stands in the text: the alias itself, where it is one."""
    if child.start_mark.index < key.end_mark.index:  # an anchor stands before its aliases
        found = _ALIAS.match(text, key.end_mark.index)
        return (found.start(1), found.end(1)) if found else (len(text), len(text))
    return child.start_mark.index, child.end_mark.index


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _added(text: str, node: MappingNode, entry: str) -> Iterator[_Change]:
    """Yield changes that add an entry to a mapping: behind the last one, else before the first."""
    end = node.end_mark.index
    if node.flow_style:
        if not node.value:
            yield _Change(end - 1, end - 1, entry)
            return
        last = len(text[: end - 1].rstrip())
        yield _Change(last, last, f"{'' if text[last - 1] == ',' else ','} {entry}")
        yield _Change(end - 1, end - 1, f", {entry}")
        return
    first = node.value[0][0].start_mark
    line = "\r\n" if "\r\n" in text else "\n"
    indent = " " * first.column
    behind = _last_character(text, *node.value[-1])
    following = text.find("\n", behind)
    if following < 0:
        yield _Change(len(text), len(text), f"{line}{indent}{entry}")
    else:
        yield _Change(following + 1, following + 1, f"{indent}{entry}{line}")
    yield _Change(first.index, first.index, f"{entry}{line}{indent}")


def _last_character(text: str, key: Node, child: Node) -> int:
    """Return the position of the last character of an entry of a block mapping; comments behind it do not count."""
    start, end = _extent(text, key, child)
    if start == child.start_mark.index and not getattr(child, "flow_style", True) and child.value:
        last = child.value[-1]
        return _last_character(text, *(last if isinstance(child, MappingNode) else (last, last)))
    if start == end:
        return key.end_mark.index
    return start + len(text[start:end].rstrip()) - 1


def _nested(path: Keys, value: str) -> str:
    """Return ``key: value``, with a flow mapping for each further key."""
    return f"{_scalar(path[0])}: {_flow(path[1:], value) if path[1:] else _scalar(value)}"


def _flow(path: Keys, value: str) -> str:
    return f"{{{_nested(path, value)}}}"


def _scalar(value: str) -> str:
    """Return a text as YAML: plain where that reads as the same text, else in double quotes."""
    if _PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)
