"""Check the form of a topology's data: unknown keys, wrong types and formats, each with its place. Pure functions."""

from __future__ import annotations

import datetime as dt
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fairlead.errors import nearest
from topologies.loader.mistakes import KeyPath, Mistake, has_user_info, is_secret_key, quote
from topologies.loader.positions import Origins
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class Unknown:
    """A key that the model does not have."""

    path: KeyPath
    valid: tuple[str, ...]


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a model's fields by their names in YAML (``from``, not ``from_``)."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def fields_at(model: type[BaseModel], path: KeyPath) -> dict[str, FieldInfo]:
    """Return the keys that the model has at a path; empty if the keys there are the topology's own names, or if the
    model has no such path."""
    return _fields(type_at(model, path)) or {}


def _fields(annotation: Any) -> dict[str, FieldInfo] | None:
    return next((keys_of(p) for p in _parts(annotation) if isinstance(p, type) and issubclass(p, BaseModel)), None)


def type_at(model: type[BaseModel], path: KeyPath) -> Any:
    """Return the annotation of the value at a path; None if the model has no such path."""
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
    """Yield the members of a union, or the annotation itself, without ``Annotated``."""
    if get_origin(annotation) is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _parts(member)
    else:
        yield annotation


def choices(annotation: Any) -> tuple[str, ...]:
    """Return the permitted words of an annotation with a fixed set of values; else an empty tuple."""
    found: list[str] = []
    for part in _parts(annotation):
        if isinstance(part, type) and issubclass(part, StrEnum):
            found.extend(member.value for member in part)
        elif get_origin(part) is Literal:
            found.extend(str(value) for value in get_args(part))
    return tuple(found)


def describe(annotation: Any) -> str:
    """Describe the expected value of an annotation in words."""
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
    """Return a copy of the data without the keys that the model does not have, and these keys.

    An empty section (``links:`` without a value) counts as absent.
    """
    unknown: list[Unknown] = []
    return _fit(model, data, (), unknown), unknown


def _fit(annotation: Any, data: Any, path: KeyPath, unknown: list[Unknown]) -> Any:
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


_NOT_HERE = (
    "no secrets here: a password comes from the environment variable FAIRLEAD_SECRET_<SITE>_<USER>, "
    "or from the section secrets of the file beside it (my-fleet.local.yaml beside my-fleet.yaml)"
)


_RENAMED: Final[dict[KeyPath, str]] = {("shore", "storage"): "tables"}
"""Keys of older releases, by path, and what they are now."""


def build(data: Any, origins: Origins) -> tuple[Topology | None, list[Mistake]]:
    """Build the topology. Return None and the mistakes if its form is wrong."""
    if not isinstance(data, dict):
        place = origins.top
        return None, [place.mistake((), f"{quote(data)} instead of a topology", describe(Topology))]
    fitting, unknown = fit(Topology, data)
    mistakes = [_unknown(item, origins) for item in unknown]
    mistakes += _user_info(data, (), origins)
    try:
        topology = Topology.model_validate(fitting)
    except ValidationError as error:
        seen: dict[KeyPath, Mistake] = {}
        for detail in error.errors(include_url=False):
            path, mistake = _mistake(detail, fitting, origins)
            seen.setdefault(path, mistake)  # pydantic reports an error for each member of a union
        return None, mistakes + list(seen.values())
    return (None if mistakes else topology), mistakes


def _unknown(item: Unknown, origins: Origins) -> Mistake:
    place = origins.of_key(item.path)
    key = str(item.path[-1])
    # Do not show the value of an unknown key: it may be a password in the wrong section.
    shown = place.excerpt[: place.column - 1 + len(key)]
    place = replace(place, excerpt=f"{shown}: …" if shown.endswith(key) else "")
    if is_secret_key(key):
        return place.mistake(item.path, "a secret in a topology", _NOT_HERE)
    renamed = _RENAMED.get(item.path)
    if renamed is not None:
        return place.mistake(item.path, f"the key is {renamed} now", f"{renamed} with the same value")
    return place.mistake(item.path, "there is no such key", ", ".join(item.valid), nearest(key, item.valid))


def _user_info(data: Any, path: KeyPath, origins: Origins) -> list[Mistake]:
    """Return a mistake for each address with a password (``user:password@host``)."""
    match data:
        case dict():
            return [m for key, value in data.items() for m in _user_info(value, (*path, key), origins)]
        case list():
            return [m for index, value in enumerate(data) for m in _user_info(value, (*path, index), origins)]
        case str() if path[-1] in ("bootstrap", "host", "tables", "master") and has_user_info(data):
            return [origins.of_value(path).mistake(path, "a secret in an address", _NOT_HERE)]
        case _:
            return []


def _mistake(detail: ErrorDetails, data: Any, origins: Origins) -> tuple[KeyPath, Mistake]:
    path, value, rest = _follow(detail["loc"], data)
    annotation = type_at(Topology, path)
    if detail["type"] == "missing":
        path = (*path, *rest[:1])
        wanted = describe(type_at(Topology, path))
        return path, origins.of_key(path).mistake(path, "is missing", wanted)
    if rest and rest[-1] == "[key]":
        expected = _expected(detail, str)
        return path, origins.of_key(path).mistake(path, f"{quote(path[-1])} cannot be a name", expected)
    words = choices(annotation)
    near = nearest(value, words) if isinstance(value, str) and words else None
    expected = describe(annotation) if words or isinstance(value, dict) else _expected(detail, annotation)
    if detail["type"] == "string_type" and isinstance(value, int | float):
        expected = "text: put it in quotes"
    return path, origins.of_value(path).mistake(path, f"{quote(value)} does not belong here", expected, near)


def _follow(loc: tuple[int | str, ...], data: Any) -> tuple[KeyPath, Any, tuple[int | str, ...]]:
    """Follow a pydantic location through the data as far as possible. Return the path, its value, and the steps left.

    The steps left name a missing field, a member of a union, or ``[key]`` if the key itself is wrong.
    """
    path: KeyPath = ()
    for number, step in enumerate(loc):
        if isinstance(data, dict) and isinstance(step, str) and step in data:
            data = data[step]
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        elif not (isinstance(step, str) and isinstance(data, list) and number + 1 < len(loc)):
            return path, data, loc[number:]
        else:
            continue  # a member of a union, before an index of the list itself
        path = (*path, step)
    return path, data, ()


def _expected(detail: ErrorDetails, annotation: Any) -> str:
    cause = detail.get("ctx", {}).get("error")
    if cause is not None:
        return str(cause).removeprefix("expected ")
    if detail["type"] in (
        "model_type",
        "dict_type",
        "tuple_type",
        "bool_parsing",
        "bool_type",
        "int_type",
        "int_parsing",
    ):
        return describe(annotation)
    text = detail["msg"]
    for prefix in ("Input should be a valid ", "Input should be ", "Input should have "):
        text = text.removeprefix(prefix)
    return {"string": "text"}.get(text, text[:1].lower() + text[1:])
