"""One value of a topology's text changes, and nothing else does."""

from __future__ import annotations

import difflib
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from topologies.loader.edit import EditError, set_value
from topologies.loader.load import load, read, shipped
from topologies.loader.positions import read_yaml

SHIPPED = sorted(shipped())
EXPRESSIONS = ("", "p", "u:ducks | (g:analysts & !u:temp)", 'u:"x"', "no", "~", "3", "a: b # c")
KEEP = ("sites", "tokyo", "retention", "orders")


def lines_of(before: str, after: str) -> list[str]:
    """The lines that differ, with ``-`` and ``+``."""
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sites:\n  tokyo: {retention: {orders: 1y}} # c\n", "  tokyo: {retention: {orders: 30d}} # c"),
        ("sites:\n  tokyo: {retention: {default: 1y}}\n", "  tokyo: {retention: {default: 1y, orders: 30d}}"),
        ("sites:\n  tokyo: {retention: {default: 1y,}}\n", "  tokyo: {retention: {default: 1y, orders: 30d}}"),
        ("sites:\n  tokyo: {retention: {}}\n", "  tokyo: {retention: {orders: 30d}}"),
        ("sites:\n  tokyo: {kind: port}\n", "  tokyo: {kind: port, retention: {orders: 30d}}"),
        ("sites:\n  tokyo: {retention: *a}\nx: &a {orders: 1y}\n", None),
        ("x: &a {orders: 1y}\nsites:\n  tokyo: {retention: *a}\n", "  tokyo: {retention: {<<: *a, orders: 30d}}"),
        ("x: &a 1y\nsites:\n  tokyo: {retention: {orders: *a}}\n", "  tokyo: {retention: {orders: 30d}}"),
        (
            "sites:\n  tokyo: {retention: &a {default: 1y}}\n  kobe: {retention: *a}\n",
            "  tokyo: {retention: {<<: &a {default: 1y}, orders: 30d}}",
        ),
        ("sites:\n  tokyo: {retention: &a {default: 1y}}\n", "  tokyo: {retention: &a {default: 1y, orders: 30d}}"),
        ("sites:\n  tokyo:\n    retention:\n      orders: 1y  # why\n", "      orders: 30d  # why"),
        ("sites:\n  tokyo:\n    retention:\n      orders: '1y'\n", "      orders: 30d"),
        ("sites:\n  tokyo:\n    retention:  # why\n", "    retention: {orders: 30d}  # why"),
        ("sites:\n  tokyo:\n    retention:\n", "    retention: {orders: 30d}"),
        ("sites:\n  tokyo:\n    retention: ~\n", "    retention: {orders: 30d}"),
    ],
)
def test_the_value_is_written_where_it_stands(text: str, line: str | None) -> None:
    if line is None:
        with pytest.raises(EditError):
            set_value(text, KEEP, "30d")
        return
    after = set_value(text, KEEP, "30d")
    (_, new) = lines_of(text, after)
    assert new == f"+{line}"


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("sites:\n  tokyo:\n    kind: port  # of call\n\nlinks: []\n", "    retention: {orders: 30d}"),
        ("sites:\n  tokyo:\n    kind: port", "    retention: {orders: 30d}"),
        ("sites:\n  tokyo:\n    retention:\n      default: 1y\n# end\n", "      orders: 30d"),
        ("sites:\n  tokyo:\n    title: |\n      Port\n    # end\n", "    retention: {orders: 30d}"),
        ("name: x\n", "sites: {tokyo: {retention: {orders: 30d}}}"),
        ("sites:\n  tokyo:\n    owners:\n    - a\n    - b\n", "    retention: {orders: 30d}"),
    ],
)
def test_a_missing_key_gets_a_line_of_its_own(text: str, added: str) -> None:
    assert lines_of(text, set_value(text, KEEP, "30d")) == [f"+{added}"]


def test_a_comment_inside_braces_stays() -> None:
    text = "sites: {tokyo: {retention: {\n  default: 1y # long enough\n}}}\n"
    assert lines_of(text, set_value(text, KEEP, "30d")) == ["-}}}", "+, orders: 30d}}}"]


def test_windows_line_ends_stay() -> None:
    text = "sites:\r\n  tokyo:\r\n    kind: port\r\n"
    assert set_value(text, KEEP, "30d") == text + "    retention: {orders: 30d}\r\n"


@pytest.mark.parametrize(
    "text",
    [
        "sites:\n  tokyo:\n    retention: &a\n      default: 1y\n  kobe:\n    retention: *a\n",  # a shared block
        "x: &p {retention: {default: 1y}}\nsites: {tokyo: *p, kobe: *p}\n",  # shared above
        "x: &a {retention: {default: 1y}}\nsites:\n  tokyo: {<<: *a}\n",  # merged in
        "sites:\n  tokyo: {retention: {orders: &a 1y, b: *a}}\n",  # others need the value
        "sites:\n  tokyo: nowhere\n",
        "sites:\n  tokyo:\n    retention:\n      orders: |\n        1y\n      # why\n",  # several lines
        "sites: [",
    ],
)
def test_what_would_change_something_else_is_refused(text: str) -> None:
    with pytest.raises(EditError) as caught:
        set_value(text, KEEP, "30d", file="fleet.yaml")
    assert "sites: {tokyo: {retention: {orders: 30d}}}" in caught.value.hint
    assert "fleet.yaml" in caught.value.what


@pytest.mark.parametrize("name", SHIPPED)
def test_every_kind_of_setting_of_the_shipped_topologies_can_be_changed(name: str) -> None:
    text = shipped()[name].read_text(encoding="utf-8")
    topology = load(name, env={})
    stream = next(iter(topology.streams))
    for site in (*list(topology.sites)[:2], list(topology.sites)[-1]):
        text = changed(text, ("sites", site, "retention", stream), "77d")
    for stream in (next(iter(topology.streams)), list(topology.streams)[-1]):
        text = changed(text, ("streams", stream, "permissions", "consume"), "p")
        text = changed(text, ("streams", stream, "priority"), "bulk")
    after = read(text, name)
    assert after.streams[stream].priority == "bulk"
    assert after.streams[stream].permissions.consume == "p"


def changed(text: str, path: tuple[str, ...], value: str) -> str:
    """Set the value; the text differs in one line, or has one more."""
    after = set_value(text, path, value)
    assert len(lines_of(text, after)) <= 2
    return after


NAMES = st.sampled_from(["a", "b", "on", "no", "1", "x y", "<"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(EXPRESSIONS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@example({"a": [None]}, ["a"], "p", False)
@example({"a": {"b": [1, 2], "x y": 1}}, ["a", "b"], "p", False)
@given(
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.lists(NAMES, min_size=1, max_size=4),
    st.sampled_from(EXPRESSIONS),
    st.sampled_from([True, False, None]),
)
def test_in_any_mapping_only_the_one_value_changes(
    content: dict[str, Any], path: list[str], value: str, flow: bool | None
) -> None:
    text = yaml.safe_dump(content, default_flow_style=flow, allow_unicode=True)
    wanted = parent = read_yaml(text, "any").data
    for key in path[:-1]:
        if not isinstance(parent, dict) or (parent.get(key) is not None and not isinstance(parent[key], dict)):
            with pytest.raises(EditError):
                set_value(text, tuple(path), value)
            return
        if parent.get(key) is None:
            parent[key] = {}
        parent = parent[key]
    if not isinstance(parent, dict):
        return
    parent[path[-1]] = value
    assert read_yaml(set_value(text, tuple(path), value), "any").data == wanted
