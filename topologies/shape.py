"""Form of a topology's data: unknown keys, wrong types and formats, each a mistake with its place. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fairlead.errors import nearest
from topologies import schema
from topologies.mistakes import Mistake, Path, has_user_info, is_secret_key, quote
from topologies.model import Topology
from topologies.source import Origins

_NOT_HERE = (
    "no secrets here: a password comes from the environment variable FAIRLEAD_SECRET_<SITE>_<USER>, "
    "or from the section secrets of <name>.local.yaml"
)


def build(data: Any, origins: Origins) -> tuple[Topology | None, list[Mistake]]:
    """The topology if its form is right, else None and what is wrong with it."""
    if not isinstance(data, dict):
        place = origins.top
        return None, [place.mistake((), f"{quote(data)} where a topology belongs", schema.describe(Topology))]
    fitting, unknown = schema.fit(Topology, data)
    mistakes = [_unknown(item, origins) for item in unknown]
    mistakes += _user_info(data, (), origins)
    try:
        topology = Topology.model_validate(fitting)
    except ValidationError as error:
        seen: dict[Path, Mistake] = {}
        for detail in error.errors(include_url=False):
            path, mistake = _mistake(detail, fitting, origins)
            seen.setdefault(path, mistake)  # a union has an error for each of its members
        return None, mistakes + list(seen.values())
    return (None if mistakes else topology), mistakes


def _unknown(item: schema.Unknown, origins: Origins) -> Mistake:
    place = origins.of_key(item.path)
    key = str(item.path[-1])
    # What stands behind a key that nobody knows helps nobody, and may be a password in the wrong section.
    shown = place.excerpt[: place.column - 1 + len(key)]
    place = replace(place, excerpt=f"{shown}: …" if shown.endswith(key) else "")
    if is_secret_key(key):
        return place.mistake(item.path, "a secret in a topology", _NOT_HERE)
    return place.mistake(item.path, "there is no such key", ", ".join(item.valid), nearest(key, item.valid))


def _user_info(data: Any, path: Path, origins: Origins) -> list[Mistake]:
    """Passwords inside addresses (``user:password@host``)."""
    match data:
        case dict():
            return [m for key, value in data.items() for m in _user_info(value, (*path, key), origins)]
        case list():
            return [m for index, value in enumerate(data) for m in _user_info(value, (*path, index), origins)]
        case str() if path[-1] in ("bootstrap", "host", "storage", "master") and has_user_info(data):
            return [origins.of_value(path).mistake(path, "a secret in an address", _NOT_HERE)]
        case _:
            return []


def _mistake(detail: ErrorDetails, data: Any, origins: Origins) -> tuple[Path, Mistake]:
    path, value, rest = _follow(detail["loc"], data)
    annotation = schema.type_at(Topology, path)
    if detail["type"] == "missing":
        path = (*path, *rest[:1])
        wanted = schema.describe(schema.type_at(Topology, path))
        return path, origins.of_key(path).mistake(path, "is missing", wanted)
    if rest and rest[-1] == "[key]":
        expected = _expected(detail, str)
        return path, origins.of_key(path).mistake(path, f"{quote(path[-1])} cannot be a name", expected)
    words = schema.choices(annotation)
    near = nearest(value, words) if isinstance(value, str) and words else None
    expected = schema.describe(annotation) if words or isinstance(value, dict) else _expected(detail, annotation)
    if detail["type"] == "string_type" and isinstance(value, int | float):
        expected = "text: put it in quotes"
    return path, origins.of_value(path).mistake(path, f"{quote(value)} does not belong here", expected, near)


def _follow(loc: tuple[int | str, ...], data: Any) -> tuple[Path, Any, tuple[int | str, ...]]:
    """Walk a pydantic location as far as the data goes: path, value there, and the steps that are left.

    The rest names a missing field, a member of a union, or ``[key]`` when the key itself is wrong.
    """
    path: Path = ()
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
        return schema.describe(annotation)
    text = detail["msg"]
    for prefix in ("Input should be a valid ", "Input should be ", "Input should have "):
        text = text.removeprefix(prefix)
    return {"string": "text"}.get(text, text[:1].lower() + text[1:])
