"""Mistakes in a topology's access expressions: what cannot be read, users that do not exist, keys that no box has.

Works on data as read, as ``topologies.check`` does. Pure functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fairlead.errors import nearest
from topologies.expression import ExpressionError, Kind, names
from topologies.expression_parser import parse
from topologies.loose import items, part, text
from topologies.mistakes import Finding, Path, quote
from topologies.model import KEY_PATTERN, PERMISSIONS, InsertPoint
from topologies.users import ADMIN, is_reserved


def check_permissions(data: Mapping[str, Any], streams: Mapping[str, Any]) -> Iterator[Finding]:
    """Everything wrong in the permissions of streams and of their keys."""
    people = {**part(data, "customers"), **part(data, "users")}
    for name, stream in streams.items():
        path: Path = ("streams", name)
        yield from _expressions((*path, "permissions"), part(stream, "permissions"), people)
        for key, permissions in part(stream, "keys").items():
            yield from _key((*path, "keys", key), stream, key)
            if isinstance(permissions, dict):
                yield from _expressions((*path, "keys", key), permissions, people)


def _expressions(path: Path, permissions: Mapping[str, Any], people: Collection[str]) -> Iterator[Finding]:
    for name in PERMISSIONS:
        written = text(permissions, name)
        if written is None:
            continue
        try:
            expression = parse(written)
        except ExpressionError as error:
            problem = f"access expression, character {error.position + 1}: {error.problem}"
            yield Finding((*path, name), problem, error.hint)
            continue
        for found in dict.fromkeys(names(expression)):
            if found.kind is Kind.USER and found.name not in people:
                yield _unknown_user((*path, name), found.name, people)


def _unknown_user(path: Path, name: str, people: Collection[str]) -> Finding:
    if is_reserved(name):
        why = (
            "the super user of every site"
            if name == ADMIN
            else "a service of Fairlead, whose rights follow from the links"
        )
        return Finding(path, f"access expression: {name} is {why}", "a customer or user of this topology")
    problem = f"access expression: there is no customer or user {quote(name)}"
    expected = ", ".join(people) or "a customer or user, but the topology has none"
    return Finding(path, problem, expected, nearest(name, people))


def _key(path: Path, stream: Any, pattern: str) -> Iterator[Finding]:
    """Keys of a stream that moves are container numbers, which begin with an owner's code."""
    owners = [owner for owner in items(stream, "owners") if isinstance(owner, str)]
    if text(stream, "insert_point") != InsertPoint.MOVES or not owners or not KEY_PATTERN.fullmatch(pattern):
        return
    key = pattern.removesuffix("*")
    length_fits = len(key) < 11 if pattern.endswith("*") else len(key) == 11
    if not length_fits or not any(key.startswith(owner) or owner.startswith(key) for owner in owners):
        expected = f"a container number, or its beginning and *, of {', '.join(owners)}"
        yield Finding(path, f"no box of this stream has the number {quote(pattern)}", expected, at_key=True)
