"""The graph of tables: what each derived table follows from, and the function of DataFrames that makes it.

The same function serves the job that keeps the table (over what new rows touch) and ``fairlead shore backfill``,
``rebuild`` and ``verify`` (over everything). A table that no line names cannot be proven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shore.tables.conditions import CONDITIONS, conditions
from shore.tables.excursions import EXCURSION_PARTS, EXCURSIONS, excursion_parts, excursions
from shore.tables.hours import ACTIVATION_ENERGY
from shore.tables.mkt import MKT, mkt
from shore.tables.model import Table
from shore.tables.outlook import OUTLOOK, outlook

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
    Derived(CONDITIONS, ("readings",), lambda inputs, _: conditions(inputs["readings"]), "window_end"),
    Derived(MKT, ("readings",), lambda inputs, given: mkt(inputs["readings"], given.activation_energy), "window_end"),
    Derived(EXCURSION_PARTS, ("readings",), lambda inputs, _: excursion_parts(inputs["readings"]), "part_start"),
    Derived(
        EXCURSIONS, ("excursion_parts",), lambda inputs, _: excursions(inputs["excursion_parts"]), "start_date_time"
    ),
    Derived(OUTLOOK, ("readings",), lambda inputs, _: outlook(inputs["readings"])),
)
"""In an order in which each table comes after its inputs."""
