"""What an MQTT broker knows of a bridge with intakes: client ids and topics. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from edge.deadletters import REPLAYS_ROOT
from edge.messages import ROOT, SUBSCRIPTION

EVENTS = f"{ROOT}/events"
BOOKINGS = f"{ROOT}/bookings"
SHIPS = f"{ROOT}/ships/"
OWN = (EVENTS, BOOKINGS, f"{SHIPS}#", f"{REPLAYS_ROOT}#")
"""What the core subscribes to itself when it has intakes, without sharing: few messages, and their order matters. Dead
letters that are replayed may be of any kind."""

WINDOW = 500
"""Messages that an intake may have unacknowledged. Below the broker's ``max_inflight_messages`` (1,000 at local
sites), so that an intake that gets no more knows why."""

NETS = 4


def intake_id(client_id: str, number: int) -> str:
    """Client id of the intake with this number, counted from 1."""
    return f"{client_id}-intake-{number}"


def shares(name: str) -> bool:
    """Whether the session with this client id is an intake's: all of these together get what another gets alone."""
    before, _, number = name.rpartition("-")
    return number.isdecimal() and before.endswith("-intake")


def net_id(client_id: str, number: int) -> str:
    """Client id of one of the sessions that outlive a restart of the MQTT broker; see ``edge.intakes.nets``."""
    return f"{client_id}-net-{number % NETS}"


def nets(client_id: str) -> Iterator[str]:
    return (net_id(client_id, number) for number in range(NETS))


def share(client_id: str) -> str:
    """The shared subscription of all intakes of a bridge."""
    return f"$share/{client_id}/{SUBSCRIPTION}"


def marks(client_id: str) -> str:
    """Where the core publishes its marks; outside of what devices may publish to."""
    return f"fairlead/intakes/{client_id}/marks"


def is_own(topic: str) -> bool:
    """Whether the core gets messages of this topic from its own session."""
    return topic in (EVENTS, BOOKINGS) or topic.startswith((SHIPS, REPLAYS_ROOT))
