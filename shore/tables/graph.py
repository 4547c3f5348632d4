"""The graph of tables: what each derived table follows from, and the function of DataFrames that makes it.

The same function serves the job that keeps the table (over what new rows touch) and ``fairlead shore backfill``,
``rebuild`` and ``verify`` (over everything). A table that no line names cannot be proven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shore.tables.alerts_now import ALERTS_NOW, alerts_now
from shore.tables.containers_now import CONTAINERS_NOW, containers_now
from shore.tables.mkt import ACTIVATION_ENERGY
from shore.tables.model import Table
from shore.tables.quality import QUALITY, quality

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Inputs = Mapping[str, "DataFrame"]
"""Tables by name."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What tables depend on besides other tables.

    Args:
        activation_energy: kJ/mol, for table ``mkt``.
    """

    activation_energy: float = ACTIVATION_ENERGY


@dataclass(frozen=True, slots=True)
class Derived:
    """A table that follows from other tables.

    Args:
        inputs: The tables it follows from.
        compute: Makes all of its rows from all rows of its inputs.
        time: The column by which a backfill bounds what it makes again; None: it makes all of it again.
    """

    table: Table
    inputs: tuple[str, ...]
    compute: Callable[[Inputs, Settings], DataFrame]
    time: str | None = None


DERIVED: tuple[Derived, ...] = (
    Derived(QUALITY, ("readings", "readings_rejected"), lambda inputs, _: quality(**inputs), "day"),
    Derived(
        CONTAINERS_NOW,
        ("readings", "custody", "alerts", "alerts_ashore", "bookings", "ships_now", "sites", "owners"),
        lambda inputs, _: containers_now(**inputs),
    ),
    Derived(
        ALERTS_NOW,
        ("alerts", "alerts_ashore", "custody", "bookings", "sites"),
        lambda inputs, _: alerts_now(**inputs),
    ),
)
"""In an order in which each table comes after its inputs."""
