"""``docs/topology.md``: every field of a topology, from the pydantic model, with the meanings of ``topology.yaml``."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from handbook.markdown import cell, code, generated_by, plain, table
from handbook.values import VALUES, expected, in_words, models
from topologies import expression_parser
from topologies.expression import MAX_LENGTH
from topologies.load import load, shipped
from topologies.model import DEFAULT_STREAMS, Model

PAGE: Final = "topology.md"
_ABOUT: Final = """\
A topology is one YAML file: who exists, what may go where, who may read what. Unknown keys are mistakes, and
`fairlead topology check FILE` tells all mistakes at once, each with its line. It never holds a secret.

    fairlead topology check my-fleet.yaml && fairlead topology show my-fleet.yaml

What a machine adds is laid over it: `<name>.local.yaml` beside it, then in the current folder, then variables
`FAIRLEAD_SITES__<SITE>__KAFKA__BOOTSTRAP` and the like ([the environment](cli.md#environment)). Neither can add a site,
stream, link, customer or user."""
_STREAMS: Final = """\
## Default streams

There wherever a topology has ships or ports; one that is named in `streams` is replaced."""
_EXPRESSIONS: Final = """\
## Access expressions

`u:` a user, `g:` a group, `r:` a role, `p` everybody (alone), `!` not, `&` and, `|` or, parentheses; the empty text is
nobody. `&` and `|` may not be mixed without parentheses. For example `u:ducks | (g:analysts & !u:temp)`."""
_MEANINGS: Final = Path(__file__).with_name("topology.yaml")
_LIMITS: Final = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


class Field(NamedTuple):
    """One field as people write it. ``type`` is Markdown, ``default`` empty for a field that must be there."""

    name: str
    annotation: Any
    type: str
    default: str
    required: bool


def fields(kind: type[Model]) -> Iterator[Field]:
    """The fields of a model, in its order."""
    hints = get_type_hints(kind, include_extras=True)
    for name, info in kind.model_fields.items():
        required = info.is_required()
        default = "" if required else _written(info.get_default(call_default_factory=True, validated_data={}))
        yield Field(info.alias or name, hints[name], in_words(hints[name]) + _limits(info), default, required)


def meanings() -> dict[str, dict[str, Any]]:
    """The hand-written part, by model and field."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(_MEANINGS.read_text(encoding="utf-8"))
    return found


def page() -> str:
    """The whole page."""
    written = meanings()
    parts = [
        generated_by(__name__),
        "# Topology reference",
        _ABOUT,
        *(_section(kind, written[kind.__name__]) for kind in models()),
        _default_streams(),
        _values(),
        _grammar(),
        _shipped(),
    ]
    return "\n\n".join(parts) + "\n"


def _section(kind: type[Model], written: dict[str, Any]) -> str:
    rows = (
        [
            code(field.name),
            field.type,
            "required" if field.required else code(field.default),
            cell(written[field.name][0]),
            _example(field.name, written[field.name][1]),
        ]
        for field in fields(kind)
    )
    head = ("field", "type", "default", "meaning", "example")
    return f"## {kind.__name__}\n\n{written['about']}\n\n{table(head, rows)}"


def _example(name: str, value: Any) -> str:
    text = yaml.safe_dump({name: value}, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return code(text.strip()[1:-1])


def _limits(info: FieldInfo) -> str:
    found = [
        f"{word} {getattr(limit, key):,}"
        for limit in info.metadata
        for key, word in _LIMITS.items()
        if hasattr(limit, key)
    ]
    return f", {' and '.join(found)}" if found else ""


def _written(value: Any) -> str:
    """A default as it would stand in the file."""
    if isinstance(value, BaseModel):
        return "{}"
    if value == "":
        return '""'
    if value in ((), {}):
        return "[]" if value == () else "{}"
    return {None: "null", True: "true", False: "false"}.get(value, str(value))


def _default_streams() -> str:
    rows = (
        [code(name), each.title, code(each.insert_point), code(each.priority)] for name, each in DEFAULT_STREAMS.items()
    )
    return f"{_STREAMS}\n\n{table(('stream', 'what', 'insert point', 'priority'), rows)}"


def _values() -> str:
    parts = ["## Values"]
    for value in VALUES:
        examples = ", ".join(code(str(each)) for each in value.examples)
        parts.append(f"### {value.title}\n\nExpected: {plain(expected(value))}. Examples: {examples}.")
    return "\n\n".join(parts)


def _grammar() -> str:
    """The grammar as the parser's own docstring has it."""
    documented = inspect.getdoc(expression_parser) or ""
    block = textwrap.dedent(documented.partition("::\n")[2]).strip()
    return f"{_EXPRESSIONS} At most {MAX_LENGTH:,} characters.\n\n```text\n{block}\n```"


def _shipped() -> str:
    rows: list[list[str]] = []
    for name, file in shipped().items():
        topology = load(file, env={})
        about = re.sub(r"\s+", " ", topology.description or topology.title)
        rows.append([code(name), f"{len(topology.sites)}", f"{len(topology.directed_links())}", cell(about)])
    return "## Shipped topologies\n\n`fairlead topology show NAME` draws one.\n\n" + table(
        ("name", "sites", "links", "what"), rows
    )
