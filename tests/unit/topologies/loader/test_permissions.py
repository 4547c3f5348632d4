"""Mistakes in access expressions and key patterns are found when a topology is read, each at its line."""

from __future__ import annotations

import pytest

from tests.support.topologies.examples import RIGHT, mistakes_of, with_line
from topologies.loader.load import read
from topologies.loader.mistakes import Mistake

YELLOW = 9  # the line of stream yellow, whose owner is YELU


def yellow(rest: str) -> str:
    return with_line(YELLOW, f"  yellow: {{insert_point: moves, owners: [YELU], {rest}}}")


def the_mistake(rest: str) -> Mistake:
    """The one mistake, which must be on the stream's line at ``^``."""
    marked = yellow(rest)
    (found,) = mistakes_of(marked.replace("^", ""))
    assert (found.line, found.column) == (YELLOW, marked.splitlines()[YELLOW - 1].index("^") + 1)
    return found


@pytest.mark.parametrize(
    ("rest", "path", "problem", "expected", "nearest"),
    [
        ('permissions: {consume: ^"u:ducks & u:analyst | p:x"}',
         "permissions.consume", "character 21: & and |", "put one side in parentheses", None),
        ('permissions: {consume: ^"u:ducks |"}',
         "permissions.consume", "character 10: expected a user", "u:ducks", None),
        ('permissions: {produce: ^"ducks"}',
         "permissions.produce", "character 1: 'ducks' has no", "write u:ducks", None),
        ('permissions: {copy: ^"u:duks"}',
         "permissions.copy", "no customer or user 'duks'", "ducks, analyst", "ducks"),
        ('permissions: {consume: ^"!u:analist"}', "permissions.consume", "no customer or user", "analyst", "analyst"),
        ('permissions: {consume: ^"u:ducks | u:bridge"}',
         "permissions.consume", "a service of Fairlead", "customer", None),
        ('permissions: {admin: ^"u:admin"}', "permissions.admin", "admin is the super user", "customer", None),
        ('keys: {"YELU12*": {consume: ^"u:duks"}}', "keys.YELU12*.consume", "no customer or user", "ducks", "ducks"),
        ('keys: {^"YELU*7": {consume: "u:ducks"}}', "keys.YELU*7", "cannot be a name", "one * at the end", None),
        ('keys: {^"*": {consume: "u:ducks"}}', "keys.*", "cannot be a name", "go into permissions", None),
        ('keys: {^"YELU12?": {consume: "u:ducks"}}', "keys.YELU12?", "cannot be a name", "one * at the end", None),
        ('keys: {^"YELU[12]*": {consume: "u:ducks"}}', "keys.YELU[12]*", "cannot be a name", "a log's key", None),
        ('keys: {^"YELU**": {consume: "u:ducks"}}', "keys.YELU**", "cannot be a name", "a log's key", None),
        ('keys: {^"": {consume: "u:ducks"}}', "keys.", "cannot be a name", "a log's key", None),
        ('keys: {^"REDU12*": {consume: "u:ducks"}}', "keys.REDU12*", "no box of this stream", "of YELU", None),
        ('keys: {^"YELU12": {consume: "u:ducks"}}', "keys.YELU12", "no box of this stream", "of YELU", None),
        ('keys: {"YELU12*": {^consum: "u:ducks"}}', "keys.YELU12*.consum", "no such key", "consume", "consume"),
        ('keys: {"YELU12*": ^"u:ducks"}', "keys.YELU12*", "does not belong here", "a mapping with", None),
    ],
)  # fmt: skip
def test_a_mistake_is_found_where_it_stands(
    rest: str, path: str, problem: str, expected: str, nearest: str | None
) -> None:
    found = the_mistake(rest)
    assert found.path == f"streams.yellow.{path}"
    assert problem in found.problem
    assert expected in found.expected
    assert found.nearest == nearest


@pytest.mark.parametrize("name", ["ann.b", "Ann", "ann_b", "a" * 41])
def test_a_users_name_that_rules_could_not_keep_apart_is_refused_with_its_line(name: str) -> None:
    (found,) = mistakes_of(RIGHT.replace("  analyst:", f"  {name}:"))
    assert (found.line, found.path) == (18, f"users.{name}")
    assert "cannot be a user's name" in found.problem
    assert "lower-case letters, digits and hyphens" in found.expected


def test_all_mistakes_are_reported_at_once() -> None:
    found = mistakes_of(
        yellow('permissions: {consume: "u:", produce: "u:nobody"}, keys: {"A*": {consume: "g:"}, "YEL*": {topic: "x"}}')
    )
    assert [m.path.removeprefix("streams.yellow.") for m in found] == [
        "permissions.consume",
        "permissions.produce",
        "keys.A*",
        "keys.A*.consume",
        "keys.YEL*.topic",
    ]


def test_right_ones_are_read() -> None:
    keys = '{"YELU12*": {consume: "u:ducks"}, YELU1234567: {copy: p}}'
    text = yellow(f'permissions: {{consume: "g:nobody-yet & !g:suspended"}}, keys: {keys}')
    stream = read(text, "small.yaml").streams["yellow"]
    assert stream.keys["YELU12*"].consume == "u:ducks"
    assert stream.keys["YELU1234567"].text("copy") == "p"


def test_streams_of_other_kinds_take_any_key() -> None:
    text = RIGHT.replace(
        "links:\n", '  metrics: {keys: {tokyo.cpu: {consume: "u:ducks"}, "syd*": {produce: "u:analyst"}}}\nlinks:\n'
    )
    assert set(read(text, "small.yaml").streams["metrics"].keys) == {"tokyo.cpu", "syd*"}
