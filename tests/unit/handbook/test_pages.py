"""The generated pages of ``docs/`` say what the code does, and their examples are right."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from handbook import commands, topology
from handbook.pages import DOCS, pages
from handbook.values import VALUES, Value, anchor, in_words, models


@pytest.mark.parametrize("name", pages())
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run: python -m handbook"


# ---- topology


def test_every_field_of_a_topology_has_a_meaning_and_no_other() -> None:
    written = topology.meanings()
    assert {kind.__name__ for kind in models()} == set(written)
    for kind in models():
        assert {field.name for field in topology.fields(kind)} | {"about"} == set(written[kind.__name__]), kind
        assert all(written[kind.__name__][field.name][0] for field in topology.fields(kind))


FIELDS = [(kind.__name__, field) for kind in models() for field in topology.fields(kind)]


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=[f"{kind}.{field.name}" for kind, field in FIELDS])
def test_every_example_of_a_field_is_taken(kind: str, field: topology.Field) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(field.annotation)
    adapter.validate_python(topology.meanings()[kind][field.name][1])


@pytest.mark.parametrize("value", VALUES, ids=lambda value: anchor(value.title))
def test_every_example_of_a_value_is_taken(value: Value) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(value.type)
    for example in value.examples:
        adapter.validate_python(example)
    with pytest.raises(ValidationError):
        adapter.validate_python("\0")


def test_types_in_words() -> None:
    fields = {f"{kind.__name__}.{field.name}": field for kind in models() for field in topology.fields(kind)}
    assert fields["Link.rate"].type == "[rate](#rate) or null"
    assert fields["Link.from"].required
    assert fields["MqttAddress.port"].type == "whole number, at least 1 and at most 65,535"
    assert fields["Site.retention"].type == "mapping of [name](#name) or `default` to [duration](#duration)"
    assert in_words(tuple[str, ...]) == "list of text"


# ---- commands


def test_a_command_with_its_arguments_and_options() -> None:
    found = {command.name: command for command in commands.commands()}
    describe = found["link describe"]
    assert [each.names for each in describe.arguments] == [("LINK",)]
    options = {each.names[0]: each for each in found["replicate"].options}
    assert options["--at"].repeated and options["--at"].value == "SITE"
    assert options["--metrics-port"].value == "N from 0 to 65535"
    assert options["--all"].value == options["--all"].default == ""
    assert options["--topology"].variable == "FAIRLEAD_TOPOLOGY" and options["--topology"].default == "big-blue"
    assert "bridge replay" in found and found["bridge"].options
