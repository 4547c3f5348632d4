"""A small right topology as text, and a way to spoil one line of it."""

from __future__ import annotations

import pytest

from topologies.loader.load import read
from topologies.loader.mistakes import Mistake, TopologyErrors

RIGHT = """\
name: small
sites:
  tokyo: {kind: port, unlocode: JPTYO, retention: {default: 1y}}
  sydney: {kind: port, unlocode: AUSYD}
  duck-star: {kind: ship, imo: "9074729"}
  shop: {kind: customer}
streams:
  containers: {insert_point: moves, owners: [BIGU]}
  yellow: {insert_point: moves, owners: [YELU]}
links:
  - {from: tokyo, to: sydney, both: true, streams: {containers: all, alerts: all}}
  - {from: tokyo, to: duck-star, when: berthed, streams: {containers: aboard}}
  - {from: duck-star, to: tokyo, rate: 64 kbit/s, streams: {alerts: all}}
  - {from: sydney, to: shop, streams: {feeds: [ducks]}}
customers:
  ducks: {feed_at: sydney, reads_at: [shop]}
users:
  analyst: {at: [tokyo]}
shore: {at: sydney}
"""


def with_line(number: int, line: str) -> str:
    """``RIGHT`` with one line (from 1) in another form; a line break in it adds a line."""
    lines = RIGHT.splitlines()
    lines[number - 1] = line
    return "\n".join(lines) + "\n"


def mistakes_of(text: str, env: dict[str, str] | None = None) -> tuple[Mistake, ...]:
    """The mistakes of a text that must have some."""
    with pytest.raises(TopologyErrors) as caught:
        read(text, "small.yaml", env=env)
    return caught.value.mistakes
