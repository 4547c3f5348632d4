"""For any input, the loader returns a topology or raises ``TopologyErrors``."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.topologies.examples import RIGHT
from topologies.loader.load import from_environment, read
from topologies.loader.mistakes import TopologyErrors
from topologies.loader.positions import read_yaml

_WORDS = """name title sites streams links customers users shore kind port ship hq unlocode JPTYO imo 9074729 retention
default forever 90d owners BIGU insert_point moves site both from to when berthed always rate all aboard feeds alerts
containers feed_at reads_at at kafka bootstrap mqtt host tokyo sydney duck-star ducks << [key] permissions consume copy
from_ password""".split()
_scalars = (
    st.sampled_from(_WORDS)
    | st.text(max_size=8)
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.binary(max_size=4)
)
_keys = st.sampled_from(_WORDS) | st.text(max_size=6)
_data = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=5), max_leaves=25
)
_right: dict[str, Any] = yaml.safe_load(RIGHT)

patient = settings(deadline=None)  # how long one example takes depends on what else the machine does


def _answers(text: str, env: dict[str, str] | None = None) -> None:
    """Reads; passes when the answer is a topology or a well-formed error."""
    try:
        read(text, "any.yaml", env=env)
    except TopologyErrors as error:
        assert error.mistakes
        assert all(m.problem for m in error.mistakes)
        lines = text.count("\n") + text.count("\r") + text.count("\x85") + text.count("\u2028") + text.count("\u2029")
        assert all(m.file.startswith("$") or 1 <= m.line <= lines + 1 for m in error.mistakes)
        str(error).encode("utf-8")


@patient
@given(st.text())
@example("? ")
@example("{")
@example("&a [*a]")
@example("<<: <<")
@example("? &a\n: *a")
@example("1: 2\n0x_: 0b_")
@example("sites: !!set {a, b}")
@example("sites: 2001-99-99")
@example("sites: {a: {kind: ship, imo: '\u00b2\u00b2\u00b2\u00b2\u00b2\u00b2\u00b2'}}")
@example("links: [{rate: " + "9" * 400 + " kbit/s}]")
@example("sites: {a: {retention: {default: 999999999999999999y}}}")
@example("x: " + "9" * 5000)
def test_any_text(text: str) -> None:
    _answers(text)


@patient
@given(st.text(alphabet="{}[]:,-&*!|>'\"%@#?\\ \n\tab0<xU"))
def test_any_text_of_yamls_own_characters(text: str) -> None:
    _answers(text)


@patient
@given(st.dictionaries(_keys, _data, max_size=6))
def test_any_data(data: dict[str, Any]) -> None:
    _answers(yaml.safe_dump(data, allow_unicode=True))


@st.composite
def _nearly_right(draw: st.DrawFn) -> dict[str, Any]:
    """The right example with a few of its values replaced by anything, or taken away."""
    data = yaml.safe_load(RIGHT)
    for _ in range(draw(st.integers(1, 4))):
        place = data
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.integers(0, 3)):
                place = place[key]
                continue
            if draw(st.booleans()):
                place[key] = draw(_data)
            else:
                del place[key]
            break
        if not data:
            break
    return data if isinstance(data, dict) else {}


@patient
@given(_nearly_right())
def test_a_topology_with_anything_in_some_places(data: dict[str, Any]) -> None:
    _answers(yaml.safe_dump(data, allow_unicode=True))


@patient
@given(_nearly_right())
def test_any_override_file(data: dict[str, Any]) -> None:
    override = read_yaml(yaml.safe_dump(data, allow_unicode=True), "any.local.yaml")
    try:
        read(RIGHT, "small.yaml", overrides=[override])
    except TopologyErrors as error:
        assert error.mistakes


_parts = st.lists(st.sampled_from([*_WORDS, "", "TOKYO", "DUCK_STAR", "X"]), min_size=1, max_size=5)


@patient
@given(st.dictionaries(_parts.map(lambda parts: "FAIRLEAD_" + "__".join(parts).upper()), st.text(), max_size=3))
@example({"FAIRLEAD_SITES__TOKYO": ""})
@example({"FAIRLEAD_LINKS__0__RATE": "x"})
@example({"FAIRLEAD_NAME__X": "\udcff"})
def test_any_environment(env: dict[str, str]) -> None:
    _answers(RIGHT, env)


@patient
@given(st.text())
def test_variables_of_others_are_no_overrides(value: str) -> None:
    env = {"FAIRLEAD_HOME": value, "FAIRLEAD_SECRET_A__B_C": value, "PATH": value, "FAIRLEADX__A": value}
    assert from_environment(env, _right) == []


@pytest.mark.parametrize("size", [4_000_001])
def test_a_text_too_large_is_refused_before_it_is_read(size: int) -> None:
    with pytest.raises(TopologyErrors, match="more than 4,000,000"):
        read("#" * size, "large.yaml")
