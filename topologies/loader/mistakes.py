"""Define mistakes in a topology and the error that carries them all, and render them for a terminal. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

from rich.cells import cell_len

from fairlead.errors import ConfigurationError

KeyPath = tuple[str | int, ...]
"""Path from the top of a topology to a value: keys, and indices of lists."""

_SECRET_KEY = re.compile(r"passw(or)?d|passphrase|secret|token|credential|private[_-]?key|api[_-]?key", re.IGNORECASE)
_SECRET_LINE = re.compile(rf"(?i)((?:{_SECRET_KEY.pattern})[\w-]*[\"']?\s*[:=]\s*)(?=\S)[^,}}\]]+")
_USER_INFO = re.compile(r"(?<![\w.-])[^\s/@,\"'\[{]+:[^\s/@,\"']+@")
_WIDTH = 100
_LONG = 1000


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a topology.

    Args:
        file: The file as given, or ``$NAME`` for an environment variable.
        line, column: Counted from 1; both 0 where there is none (an environment variable, an unreadable file).
        path: Path of the value, ``sites.tokyo.unlocode`` or ``links[3].to``; empty for the whole file.
        problem: The problem, in one sentence.
        expected: The expected value; may be empty.
        nearest: The valid name that is most similar to the written one, or None.
        excerpt: The line of the file with secrets masked; for people only.
    """

    file: str
    line: int
    column: int
    path: str
    problem: str
    expected: str = ""
    nearest: str | None = None
    excerpt: str = ""


class CheckFinding(NamedTuple):
    """A mistake without its line. ``at_key``: the key is wrong (or something is missing in it), not the value."""

    path: KeyPath
    problem: str
    expected: str = ""
    nearest: str | None = None
    at_key: bool = False


class TopologyErrors(ConfigurationError):
    """The error for a topology with mistakes. It has all of them, in the order of files and lines."""

    def __init__(self, file: str, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        count = len(self.mistakes)
        super().__init__(
            f"{plain(file)} has {'a mistake' if count == 1 else f'{count} mistakes'}\n\n{render(self.mistakes)}\n",
            hint="correct what is listed; nothing was started or changed",
            file=plain(file),
            mistakes=[{k: v for k, v in asdict(m).items() if k != "excerpt"} for m in self.mistakes],
        )


def show_path(path: KeyPath) -> str:
    """Return a path as text: ``("links", 3, "to")`` becomes ``links[3].to``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return plain(text)


def is_secret_key(key: str) -> bool:
    """Return whether the value of a key is probably a secret, judged by the key's name."""
    return bool(_SECRET_KEY.search(key))


def without_secrets(text: str) -> str:
    """Return a line with passwords masked: values of keys such as ``password``, and ``user:password@host``.

    A very long line becomes empty: searching it could take minutes, and cutting it could split a password.
    """
    if len(text) > _LONG:
        return ""
    return _USER_INFO.sub("***@", _SECRET_LINE.sub(r"\1***", text))


def has_user_info(text: str) -> bool:
    """Return whether a URL or address contains ``user:password@``."""
    head, at, _ = text.rpartition("@")
    authority = head.rpartition("://")[2]
    return bool(at) and ":" in authority and "/" not in authority


def plain(text: str) -> str:
    """Return text that any terminal can show: unprintable characters become escapes."""
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return printable.encode("utf-8", "backslashreplace").decode()


def quote(value: object) -> str:
    """Return a value for a message: short, on one line, without secrets."""
    match value:
        case str() if len(value) > _LONG:
            return "a very long text"
        case str():
            shown = f"'{plain(value)}'"
        case None:
            return "nothing"
        case bool():
            shown = str(value).lower()
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            shown = str(value) if not isinstance(value, int) or abs(value) < 10**100 else "a very large number"
    shown = without_secrets(shown)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def render(mistakes: Iterable[Mistake]) -> str:
    """Render all mistakes in the style of a compiler: place, problem, the line with a caret, the expected value."""
    return "\n\n".join(_render_one(mistake) for mistake in mistakes)


def _render_one(mistake: Mistake) -> str:
    place = f"{plain(mistake.file)}:{mistake.line}:{mistake.column}" if mistake.line else plain(mistake.file)
    about = f"{mistake.path}: " if mistake.path else ""
    lines = [f"{place}: {about}{mistake.problem}"]
    if mistake.excerpt.strip():
        number = str(mistake.line)
        text, column = _window(plain(mistake.excerpt.replace("\t", " ")), mistake.column - 1)
        lines.append(f"  {number} | {text}")
        lines.append(f"  {' ' * len(number)} | {' ' * cell_len(text[:column])}^")
    if mistake.expected:
        lines.append(f"  expected: {mistake.expected}")
    if mistake.nearest:
        lines.append(f"  did you mean: {plain(mistake.nearest)}")
    return "\n".join(lines)


def _window(text: str, column: int) -> tuple[str, int]:
    """Return the part of a long line around a column, and the position of the column in it."""
    if len(text) <= _WIDTH:
        return text.rstrip(), column
    start = max(0, min(column - _WIDTH // 2, len(text) - _WIDTH))
    head = "..." if start else ""
    tail = "..." if start + _WIDTH < len(text) else ""
    return head + text[start : start + _WIDTH] + tail, column - start + len(head)
