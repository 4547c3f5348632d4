"""The graph of tables: the inputs of each derived table, and the DataFrame function that computes it.

The same function serves the job that keeps the table (over what new rows touch) and ``fairlead shore backfill``,
``rebuild`` and ``verify`` (over everything). A derived table that is missing here cannot be verified.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from shore.tables.alerts_ashore import ALERTS_ASHORE, alerts_ashore
from shore.tables.alerts_now import ALERTS_NOW, alerts_now
from shore.tables.bands import HOLD_MINUTES
from shore.tables.bookings import BOOKINGS, bookings
from shore.tables.cold_treatments import COLD_TREATMENTS, cold_treatments
from shore.tables.conditions import CONDITIONS, conditions
from shore.tables.containers_now import CONTAINERS_NOW, containers_now
from shore.tables.custody import CUSTODY, custody
from shore.tables.dock_movements import DOCK_MOVEMENTS, dock_movements
from shore.tables.excursions import EXCURSION_PARTS, EXCURSIONS, SILENCE, SLOT, excursion_parts, excursions
from shore.tables.geofence_visits import GEOFENCE_VISITS, geofence_visits
from shore.tables.hours import ACTIVATION_ENERGY
from shore.tables.itineraries import PORT_CALLS, VOYAGES, port_calls, voyages
from shore.tables.milestones import MILESTONES, milestones
from shore.tables.mkt import MKT, mkt
from shore.tables.model import Table
from shore.tables.outlook import LOOKBACK, OUTLOOK, outlook
from shore.tables.quality import QUALITY, quality
from shore.tables.schedules import SCHEDULES, schedules
from shore.tables.shipments import SHIPMENTS, shipments
from shore.tables.ships_now import SHIPS_NOW, ships_now
from topologies.model import Exceptions, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Inputs = Mapping[str, "DataFrame"]
"""Tables by name."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What tables depend on besides other tables.

    Args:
        activation_energy: kJ/mol, for table ``mkt``.
        exceptions: The limits of the marks in ``schedules`` and ``milestones``.
    """

    activation_energy: float = ACTIVATION_ENERGY
    exceptions: Exceptions = field(default_factory=Exceptions)

    @classmethod
    def of(cls, topology: Topology) -> Settings:
        """Return the settings of a topology; the defaults where it has no shore."""
        shore = topology.shore
        return cls(shore.activation_energy, shore.exceptions) if shore is not None else cls()


@dataclass(frozen=True, slots=True)
class Derived:
    """A table that is computed from other tables.

    Args:
        inputs: The tables it is computed from.
        compute: Makes all of its rows from all rows of its inputs.
        time: The column by which a backfill limits what it recomputes; None: it recomputes the whole table.
        reach: A time of each row, and how long before it rows of the inputs may count for the row, by the first of
            their ``shore.maintenance.TIMES``. None: rows of any age may.
        of_itself: Its job computes some of its rows from other rows of the table.
    """

    table: Table
    inputs: tuple[str, ...]
    compute: Callable[[Inputs, Settings], DataFrame]
    time: str | None = None
    reach: tuple[str, dt.timedelta] | None = None
    of_itself: bool = False


_HOLD = dt.timedelta(minutes=HOLD_MINUTES)
_SAILED = ("dock_movements", "positions", "sites")

DERIVED: tuple[Derived, ...] = (
    # A window, with what the last reading before it stands for.
    Derived(
        CONDITIONS,
        ("readings",),
        lambda i, _: conditions(i["readings"]),
        "window_end",
        reach=("window_start", _HOLD),
        of_itself=True,
    ),
    Derived(
        MKT,
        ("readings",),
        lambda i, settings: mkt(i["readings"], settings.activation_energy),
        "window_end",
        reach=("window_start", _HOLD),
        of_itself=True,
    ),
    Derived(
        EXCURSION_PARTS,
        ("readings",),
        lambda i, _: excursion_parts(i["readings"]),
        "part_start",
        reach=("part_start", 2 * SLOT),  # an hour: its job takes hours as a whole
    ),
    # What is left of a session that began before begins within a silence and a slot.
    Derived(
        EXCURSIONS,
        ("excursion_parts",),
        lambda i, _: excursions(i["excursion_parts"]),
        "start_date_time",
        reach=("start_date_time", SILENCE + SLOT),
    ),
    Derived(ALERTS_ASHORE, ("readings",), lambda i, _: alerts_ashore(i["readings"])),
    Derived(BOOKINGS, ("booking_changes",), lambda i, _: bookings(i["booking_changes"])),
    Derived(
        CUSTODY,
        ("custody_entries", "sites", "owners"),
        lambda i, _: custody(i["custody_entries"], i["sites"], i["owners"]),
    ),
    Derived(
        MILESTONES,
        ("events", "bookings", "sites"),
        lambda i, settings: milestones(**i, dwell_hours=settings.exceptions.dwell_hours),
    ),
    Derived(SHIPMENTS, ("milestones", "bookings"), lambda i, _: shipments(**i)),
    Derived(
        SCHEDULES,
        ("events", "sites"),
        lambda i, settings: schedules(**i, eta_hours=settings.exceptions.eta_hours),
    ),
    Derived(
        DOCK_MOVEMENTS,
        ("events", "sites", "owners"),
        lambda i, _: dock_movements(i["events"], i["sites"], i["owners"]),
        "event_date_time",
    ),
    Derived(PORT_CALLS, _SAILED, lambda i, _: port_calls(*(i[name] for name in _SAILED)), "call_date_time"),
    Derived(VOYAGES, _SAILED, lambda i, _: voyages(*(i[name] for name in _SAILED)), "leg_date_time"),
    Derived(
        GEOFENCE_VISITS,
        ("positions", "geofences", "sites"),
        lambda i, _: geofence_visits(**i),
        "entered_date_time",
    ),
    Derived(SHIPS_NOW, ("positions", "sites"), lambda i, _: ships_now(i["positions"], i["sites"])),
    Derived(
        QUALITY, ("readings", "readings_rejected"), lambda i, _: quality(**i), "day", reach=("day", dt.timedelta())
    ),
    Derived(
        CONTAINERS_NOW,
        ("readings", "custody", "alerts", "alerts_ashore", "bookings", "ships_now", "sites", "owners", "digests"),
        lambda i, _: containers_now(**i),
    ),
    Derived(
        ALERTS_NOW,
        ("alerts", "alerts_ashore", "custody", "bookings", "sites"),
        lambda i, _: alerts_now(**i),
    ),
    Derived(OUTLOOK, ("readings",), lambda i, _: outlook(i["readings"]), reach=("as_of_date_time", LOOKBACK)),
    Derived(COLD_TREATMENTS, ("readings", "bookings"), lambda i, _: cold_treatments(i["readings"], i["bookings"])),
)
"""Each table comes after its inputs."""
BY_NAME: Final = {each.table.name: each for each in DERIVED}
