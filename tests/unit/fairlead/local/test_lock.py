"""The lock of Java artifacts: what ships is whole, and mistakes in it are said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead.jars
from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.jars.lock import Jar, JarSet, jar_set, parse_coordinates, parse_lock, read_lock
from tools.lock_jars import format_lock

_PART = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,20}", fullmatch=True)
_JAR = st.builds(Jar, _PART, _PART, _PART, st.from_regex(r"[0-9a-f]{64}", fullmatch=True))


@given(st.lists(_JAR, unique_by=lambda jar: jar.coordinates), st.booleans())
def test_what_is_written_can_be_read(jars: list[Jar], transitive: bool) -> None:
    written = JarSet("kafka", tuple(jar.coordinates for jar in jars[:1]), transitive, tuple(sorted(jars)))
    assert parse_lock(format_lock({"kafka": written})) == {"kafka": written}


def test_the_shipped_lock_has_what_is_requested() -> None:
    sets = read_lock()
    assert set(sets) == {"kafka", "delta", "mirrormaker", "console"}
    for body in sets.values():
        locked = {jar.coordinates for jar in body.jars}
        assert set(body.requested) <= locked
        assert len({jar.path for jar in body.jars}) == len(body.jars)
    assert jar_set("kafka").revision_of("kafka-clients") == "4.3.1"
    assert len(jar_set("delta").jars) == 2  # more would come with other versions of what pyspark has


def test_no_file_names_a_registry() -> None:
    for file in Path(fairlead.jars.__file__).parent.iterdir():
        if file.suffix in (".py", ".lock"):
            assert "://" not in file.read_text(encoding="utf-8")


def test_an_unknown_set_names_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"'kafak'.*\n.*did you mean 'kafka'.*delta"):
        jar_set("kafak")


@pytest.mark.parametrize("text", ["", "a:b", "a:b:c:d", "a:b:../c", "a b:c:d"])
def test_coordinates_have_three_parts(text: str) -> None:
    with pytest.raises(ConfigurationError, match="organisation:name:revision"):
        parse_coordinates(text)


def test_a_digest_of_another_length_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match=r"a:b:1 has no SHA-256"):
        parse_lock('[kafka]\nrequested = []\ntransitive = true\n[kafka.jars]\n"a:b:1" = "abc"\n')


def test_a_lock_that_is_no_toml_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)cannot be read.*lock_jars"):
        parse_lock("[kafka")
