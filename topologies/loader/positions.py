"""Read YAML text into plain values, with the place of every key and value. Pure functions.

The reader walks PyYAML's node graph instead of letting PyYAML build objects, because nodes have line numbers, and
because keys stay text (``no:`` and ``on:`` are names, not booleans). Anchors, aliases and merge keys (``<<``) work as
usual.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from topologies.loader.mistakes import KeyPath, Mistake, is_secret_key, show_path, without_secrets

_TAG = "tag:yaml.org,2002:"
_QUOTED = re.compile(r"'[^']{3,}'|\"[^\"]{3,}\"")
_MAX_DEPTH = 30
_MAX_NODES = 100_000  # with aliases expanded: a few lines of aliases can expand to billions of nodes
_MAX_TEXT = 4_000_000


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The place of a key or value. ``line`` and ``column`` count from 1; both are 0 for an environment variable."""

    file: str
    line: int = 0
    column: int = 0
    excerpt: str = ""

    def mistake(self, path: KeyPath, problem: str, expected: str = "", nearest: str | None = None) -> Mistake:
        return Mistake(
            self.file, self.line, self.column, show_path(path), problem, expected, nearest, excerpt=self.excerpt
        )


@dataclass(slots=True)
class Origins:
    """The places of keys and values by path. A path that is not in the file has the place of its nearest parent."""

    top: SourcePlace
    keys: dict[KeyPath, SourcePlace] = field(default_factory=dict)
    values: dict[KeyPath, SourcePlace] = field(default_factory=dict)

    def of_value(self, path: KeyPath) -> SourcePlace:
        return self.values.get(path) or self.of_key(path)

    def of_key(self, path: KeyPath) -> SourcePlace:
        """Return the place of a key. A list item has no key: return the place where the item begins.

        For a path that is not in the file, return the nearest parent's key, because its value may begin lines below.
        """
        for length in range(len(path), 0, -1):
            if found := self.keys.get(path[:length]) or self.values.get(path[:length]):
                return found
        return self.top

    def move(self, old: KeyPath, new: KeyPath, to: Origins) -> None:
        """Record in ``to`` that everything at and below ``old`` is now at ``new``."""
        for mine, theirs in ((self.keys, to.keys), (self.values, to.values)):
            for path, place in mine.items():
                if path[: len(old)] == old:
                    theirs[new + path[len(old) :]] = place


@dataclass(slots=True)
class ParsedFile:
    """One file as read: plain values (dict, list, str, int, float, bool, None), their places, and the mistakes.

    ``data`` is None if the text is not YAML.
    """

    file: str
    data: Any
    origins: Origins
    mistakes: list[Mistake] = field(default_factory=list)


def read_yaml(text: str, file: str) -> ParsedFile:
    """Read YAML text. Never raises: errors are in ``mistakes``."""
    lines = text.splitlines()
    top = SourcePlace(file, 1, 1, without_secrets(lines[0]) if lines else "")
    source = ParsedFile(file, None, Origins(top))
    if len(text) > _MAX_TEXT:
        source.mistakes.append(top.mistake((), f"the file has more than {_MAX_TEXT:,} characters"))
        return source
    root = _compose(text, source, lines)
    if root is not None:
        lines = _cover_secrets(root, lines)
        source.origins.top = _place(file, root.start_mark, lines)
        source.data = _Reader(source, lines).value(root, (), ())
    if source.data is None and not source.mistakes:  # the file is empty or has only ``null``
        wanted = "a topology: name, sites, streams, links"
        source.mistakes.append(source.origins.top.mistake((), "the file is empty", wanted))
    return source


def _compose(text: str, source: ParsedFile, lines: list[str]) -> Node | None:
    loader: yaml.SafeLoader | None = None
    # Text that cannot be parsed cannot be masked value by value, so show no line of a file that may have passwords.
    hidden = any(line.startswith("secrets") for line in lines)
    covered = ["" if hidden else without_secrets(line) for line in lines]
    try:
        loader = yaml.SafeLoader(text)
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        if hidden:
            what = _QUOTED.sub("'…'", what)  # YAML reads a password that begins with * or ! as an alias or tag
        place = _place(source.file, mark, covered) if mark else source.origins.top
        source.mistakes.append(place.mistake((), f"not YAML: {what}", _hint(what)))
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line = before.count("\n")
        column = len(before) - (before.rfind("\n") + 1)
        place = SourcePlace(source.file, line + 1, column + 1)
        character = f"U+{ord(text[error.position]):04X}"
        source.mistakes.append(place.mistake((), f"a character that YAML does not allow: {character}"))
    except RecursionError:
        source.mistakes.append(source.origins.top.mistake((), "nested too deeply"))
    except (ValueError, OverflowError) as error:  # PyYAML raises these for escapes of invalid characters
        place = _place(source.file, loader.get_mark(), covered) if loader else source.origins.top
        source.mistakes.append(place.mistake((), f"not YAML: {error}"))
    finally:
        if loader is not None:
            loader.dispose()
    return None


def _hint(what: str) -> str:
    if "\\t" in what:
        return "spaces: YAML does not allow tabs for indentation"
    if "mapping values are not allowed" in what:
        return "quotes around text that contains ': ', or the right indentation"
    if "single document" in what:
        return "one document: no '---' after the first line"
    return ""


def _place(file: str, mark: Any, lines: list[str]) -> SourcePlace:
    return SourcePlace(file, mark.line + 1, mark.column + 1, lines[mark.line] if mark.line < len(lines) else "")


def _cover_secrets(root: Node, lines: list[str]) -> list[str]:
    """Return the lines with the values of secret keys masked, on whatever line they are."""
    covered = list(lines)
    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            todo.extend(node.value)
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                if isinstance(key, ScalarNode) and is_secret_key(key.value):
                    _cover(covered, value)  # mask nested values too: "secrets" has users with their passwords
                todo.extend((key, value))
    return [without_secrets(line) for line in covered]


def _cover(lines: list[str], node: Node) -> None:
    start, end = node.start_mark, node.end_mark
    for number in range(start.line, min(end.line + 1, len(lines))):
        line = lines[number]
        first = start.column if number == start.line else 0
        last = end.column if number == end.line else len(line)
        lines[number] = line[:first] + "*" * max(0, min(last, len(line)) - first) + line[last:]


class _Reader:
    """Walk the nodes of one source and collect places and mistakes."""

    def __init__(self, source: ParsedFile, lines: list[str]) -> None:
        self._source = source
        self._lines = lines
        self._scalars = SafeConstructor()
        self._left = _MAX_NODES
        self._told = False

    def value(self, node: Node, path: KeyPath, above: tuple[int, ...]) -> Any:
        place = self._at(node)
        self._source.origins.values[path] = place
        if id(node) in above:
            self._wrong(place, path, "an alias inside its own anchor")
            return None
        if self._too_much(place, path, above):
            return None
        match node:
            case MappingNode():
                return self._mapping(node, path, (*above, id(node)))
            case SequenceNode():
                inner = (*above, id(node))
                return [self.value(item, (*path, index), inner) for index, item in enumerate(node.value)]
            case ScalarNode():
                return self._scalar(node, place, path)
            case _:
                return None

    def _too_much(self, place: SourcePlace, path: KeyPath, above: tuple[int, ...]) -> bool:
        self._left -= 1
        if len(above) <= _MAX_DEPTH and self._left >= 0:
            return False
        if not self._told:
            self._wrong(place, path, "nested too deeply, or too large")
        self._told = True
        return True

    def _mapping(self, node: MappingNode, path: KeyPath, above: tuple[int, ...]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        merged: list[tuple[Node, tuple[int, ...]]] = []
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self._wrong(self._at(key), path, "a key that is not text", "a name")
                continue
            if key.tag == f"{_TAG}merge":
                merged.extend((item, above) for item in (value.value if isinstance(value, SequenceNode) else [value]))
                continue
            name = _valid_text(key.value)
            here = (*path, name)
            if name in out:
                first = self._source.origins.keys[here].line
                self._wrong(self._at(key), here, f"written twice; the first is on line {first}", "each key once")
                continue
            self._source.origins.keys[here] = self._at(key)
            out[name] = self.value(value, here, above)
        for base, around in merged:
            self._merge(base, out, path, around)
        return out

    def _merge(self, base: Node, out: dict[str, Any], path: KeyPath, above: tuple[int, ...]) -> None:
        """Add the keys of ``<<: base`` that the mapping itself does not have."""
        if self._too_much(self._at(base), path, above):
            return
        if not isinstance(base, MappingNode) or id(base) in above:
            self._wrong(self._at(base), path, "'<<' without another mapping", "an alias of a mapping")
            return
        further: list[Node] = []
        for key, value in base.value:
            if not isinstance(key, ScalarNode):
                continue  # reported at the mapping itself
            if key.tag == f"{_TAG}merge":
                further.extend(value.value if isinstance(value, SequenceNode) else [value])
                continue
            name = _valid_text(key.value)
            if name not in out:
                self._source.origins.keys[(*path, name)] = self._at(key)
                out[name] = self.value(value, (*path, name), (*above, id(base)))
        for item in further:
            self._merge(item, out, path, (*above, id(base)))

    def _scalar(self, node: ScalarNode, place: SourcePlace, path: KeyPath) -> Any:
        try:
            match node.tag.removeprefix(_TAG):
                case "str" | "timestamp" | "merge" | "value":
                    return _valid_text(node.value)
                case "null":
                    return None
                case "bool":
                    return self._scalars.construct_yaml_bool(node)
                case "int":
                    return self._scalars.construct_yaml_int(node)
                case "float":
                    return self._scalars.construct_yaml_float(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            self._wrong(place, path, "a number that cannot be read", "a number, or text in quotes")
            return None
        secret = any(isinstance(step, str) and is_secret_key(step) for step in path)  # it may begin with !
        self._wrong(
            place, path, "a tag" if secret else f"the tag {_valid_text(node.tag)}", "a plain value without a tag"
        )
        return None

    def _at(self, node: Node) -> SourcePlace:
        return _place(self._source.file, node.start_mark, self._lines)

    def _wrong(self, place: SourcePlace, path: KeyPath, problem: str, expected: str = "") -> None:
        self._source.mistakes.append(place.mistake(path, problem, expected))


def _valid_text(text: str) -> str:
    """Return text without lone surrogates (``"\\ud800"``), which other libraries reject."""
    return text.encode("utf-8", "backslashreplace").decode()
