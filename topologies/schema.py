"""Questions about the model's own types: which keys a place in a topology may have, and what belongs there. Pure."""

from __future__ import annotations

import datetime as dt
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from topologies.mistakes import Path


@dataclass(frozen=True, slots=True)
class Unknown:
    """A key that its model does not have."""

    path: Path
    valid: tuple[str, ...]


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by the name that YAML uses (``from``, not ``from_``)."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def fields_at(model: type[BaseModel], path: Path) -> dict[str, FieldInfo]:
    """The keys that the model has at a path; empty where it has names of the topology's own, or no such place."""
    return _fields(type_at(model, path)) or {}


def _fields(annotation: Any) -> dict[str, FieldInfo] | None:
    return next((keys_of(p) for p in _parts(annotation) if isinstance(p, type) and issubclass(p, BaseModel)), None)


def type_at(model: type[BaseModel], path: Path) -> Any:
    """The annotation of the value at a path, or None where the model has no such place."""
    current: Any = model
    for step in path:
        current = _step(current, step)
        if current is None:
            return None
    return current


def _step(annotation: Any, key: str | int) -> Any:
    for part in _parts(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            info = keys_of(part).get(str(key))
            return info.annotation if info else None
        arguments = get_args(part)
        if get_origin(part) is dict and isinstance(key, str):
            return arguments[1]
        if get_origin(part) is tuple and isinstance(key, int):
            return arguments[0]
    return None


def _parts(annotation: Any) -> Iterator[Any]:
    """The members of a union, or the annotation itself; ``Annotated`` taken off."""
    if get_origin(annotation) is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _parts(member)
    else:
        yield annotation


def choices(annotation: Any) -> tuple[str, ...]:
    """The words that may stand at a place, where they can be counted."""
    found: list[str] = []
    for part in _parts(annotation):
        if isinstance(part, type) and issubclass(part, StrEnum):
            found.extend(member.value for member in part)
        elif get_origin(part) is Literal:
            found.extend(str(value) for value in get_args(part))
    return tuple(found)


def describe(annotation: Any) -> str:
    """What belongs at a place, in words."""
    words: list[str] = list(choices(annotation))
    for part in _parts(annotation):
        origin = get_origin(part)
        if origin is tuple:
            words.append("a list")
        elif origin is dict:
            words.append("a mapping of names")
        elif isinstance(part, type) and not words:
            if issubclass(part, BaseModel):
                words.append(f"a mapping with {_some(keys_of(part))}")
            elif issubclass(part, bool):
                words.append("true or false")
            elif issubclass(part, int):
                words.append("a whole number")
            elif issubclass(part, dt.timedelta):
                words.append("a duration such as 90d, or forever")
            elif issubclass(part, str):
                words.append("text")
    return _either(words)


def _some(fields: dict[str, FieldInfo]) -> str:
    needed = [name for name, info in fields.items() if info.is_required()]
    return ", ".join(needed or fields)


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else ""


def fit(model: type[BaseModel], data: Any) -> tuple[Any, list[Unknown]]:
    """A copy of the data without the keys that the model does not have, and those keys.

    An empty section (``links:`` with nothing behind it) counts as not written.
    """
    unknown: list[Unknown] = []
    return _fit(model, data, (), unknown), unknown


def _fit(annotation: Any, data: Any, path: Path, unknown: list[Unknown]) -> Any:
    if isinstance(data, list):
        return [_fit(_step(annotation, index), item, (*path, index), unknown) for index, item in enumerate(data)]
    if not isinstance(data, dict):
        return data
    fields = _fields(annotation)
    out: dict[str, Any] = {}
    for key, value in data.items():
        if fields is not None and key not in fields:
            unknown.append(Unknown((*path, key), tuple(fields)))
        elif fields is not None and value is None and _may_be_empty(fields[key]):
            continue
        else:
            out[key] = _fit(_step(annotation, key), value, (*path, key), unknown)
    return out


def _may_be_empty(info: FieldInfo) -> bool:
    sections = (get_origin(part) in (dict, tuple) for part in _parts(info.annotation))
    return not info.is_required() and any(sections)
