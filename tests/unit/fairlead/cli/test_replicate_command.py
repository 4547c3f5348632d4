"""``fairlead replicate``: its memory, and the table that it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fairlead.cli.commands.replicate import LEAST_MEMORY, live_table, parse_memory
from fairlead.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MB", 256_000_000),
        ("256 mb", 256_000_000),
        ("64MiB", 64 << 20),
        ("0.5GB", 500_000_000),
        ("32MB", 32_000_000),
    ],
)
def test_memory_is_a_size_with_its_unit(text: str, size: int) -> None:
    assert parse_memory(text) == size


@given(st.integers(0, 2 * LEAST_MEMORY))
def test_less_memory_than_a_replicator_can_work_with_is_refused(size: int) -> None:
    if size >= LEAST_MEMORY:
        assert parse_memory(str(size)) == size
    else:
        with pytest.raises(ConfigurationError, match="at least 32 MB"):
            parse_memory(str(size))


@dataclass
class Stub:
    """A replicator that says this."""

    site: str
    links: list[dict[str, Any]]
    logs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def snapshot(self) -> dict[str, Any]:
        return {"site": self.site, "target": {"state": "up", "cause": ""}, "links": self.links, "logs": self.logs}


def test_the_table_tells_paused_logs_from_those_in_trouble(capsys: pytest.CaptureFixture[str]) -> None:
    counters = {"followed": 7, "records": 8, "bytes": 9_000_000, "lag": None, "cause": ""}
    links = [{"name": "a->b", "state": "mirroring", **counters}, {"name": "c->b", "state": "paused", **counters}]
    logs: dict[str, dict[str, Any]] = {
        "s.1": {"state": "paused", "link": "a->b"},
        "s.2": {"state": "paused", "link": "a->b"},
        "s.3": {"state": "diverged", "link": "a->b"},
        "s.4": {"state": "misplaced", "link": None},
    }
    Console(width=200).print(live_table([Stub("b", links, logs)]))
    first, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert first[-3:] == ["paused", "in", "trouble"]
    assert rows == [
        ["a->b", "mirroring", "7", "8", "9.0", "-", "2", "1"],
        ["c->b", "paused", "7", "8", "9.0", "-"],
        ["(logs", "of", "b)", "1"],
    ]
