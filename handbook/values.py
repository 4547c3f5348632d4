"""The small values of a topology in words: what each type takes, in the words of its own error. Pure functions."""

from __future__ import annotations

import types
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from topologies import model, values

_IMPOSSIBLE: Final = "\0"  # no value takes it, so each says what it expected


class Value(NamedTuple):
    """A kind of value that people write as text. ``key`` is its name in ``handbook.values.VALUES``."""

    title: str
    type: Any
    examples: tuple[object, ...]


VALUES: Final = (
    Value("name", model.SiteName, ("tokyo", "duck-star")),
    Value("IMO number", model.Imo, ("9074729",)),
    Value("UN/LOCODE", model.Unlocode, ("JPTYO",)),
    Value("owner code", model.OwnerCode, ("BIGU",)),
    Value("key pattern", model.KeyPattern, ("REDU1234565", "REDU123*")),
    Value("address", values.Bootstrap, ("broker-1:9093,broker-2:9093",)),
    Value("duration", values.Duration, ("90d", "12h", "forever")),
    Value("rate", values.BytesPerSecond, ("64 kbit/s", "8 MB/s")),
    Value("share", values.Percent, ("20 %", "250 %")),
    Value("start", values.Start, ("earliest", "latest", "end", "2026-09-01T00:00:00Z")),
    Value("Maven coordinates", values.Package, ("org.apache.hadoop:hadoop-aws:3.4.1",)),
)
_ALSO: Final = ((model.StreamName, "name"), (values.SparkSettings, "settings of Spark, name and value"))


def expected(value: Value) -> str:
    """What the type says it expected when it is given something impossible."""
    try:
        TypeAdapter(value.type).validate_python(_IMPOSSIBLE)
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        return message.partition("expected ")[2] or message
    raise AssertionError(f"{value.title} takes anything")


def in_words(kind: Any) -> str:
    """A field's type as a reader of YAML sees it, in Markdown."""
    for value in VALUES:
        if kind == value.type:
            return f"[{value.title}](#{anchor(value.title)})"
    for alias, name in _ALSO:
        if kind == alias:
            return f"[{name}](#{anchor(name)})" if name == "name" else name
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return in_words(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(in_words(each) for each in arguments))
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin is dict:
        return f"mapping of {in_words(arguments[0])} to {in_words(arguments[1])}"
    if origin is tuple:
        return f"list of {in_words(arguments[0])}"
    return _plain(kind)


def _plain(kind: Any) -> str:
    if kind is type(None):
        return "null"
    if issubclass(kind, BaseModel):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if issubclass(kind, Enum):
        return ", ".join(f"`{each.value}`" for each in kind)
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}[kind]


def anchor(title: str) -> str:
    """A heading's anchor, as GitHub and the site make it."""
    return "".join(each for each in title.lower().replace(" ", "-") if each.isalnum() or each in "-_")


def models() -> Iterator[type[model.Model]]:
    """Every model of a topology, from the whole to its parts, in the order of the file."""
    seen: list[type[model.Model]] = [model.Topology]
    for each in seen:
        yield each
        seen.extend(part for part in _parts(each) if part not in seen)


def _parts(kind: type[model.Model]) -> list[type[model.Model]]:
    found: list[type[model.Model]] = []

    def look(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, model.Model):
            found.append(annotation)
        for argument in get_args(annotation):
            look(argument)

    for field in kind.model_fields.values():
        look(field.annotation)
    return list(dict.fromkeys(found))
