"""The voyage that ``fairlead voyage`` is asked for: planned from a scenario, or read from a recording; and what the
model alone can do with one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, open_topology
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError

if TYPE_CHECKING:
    from simulators.recording.read import Replay
    from simulators.voyage import Course, Voyage


def planned(
    topology: str | None, scenario: str | None, *, calm: bool, scale: int | None, interval: str | None, **settings: Any
) -> tuple[Context, Voyage]:
    """A voyage from a scenario, and where it sails.

    Args:
        scale: For how many boxes a fleet is to be sized: fewer are modelled.
        settings: Of ``simulators.voyage.Voyage``.
    """
    from simulators.scale.sizing import modelled
    from simulators.scenario_file import load, topology_source
    from simulators.voyage import Voyage
    from topologies.values import parse_duration

    named = load(scenario) if scenario else None
    context = open_topology(topology or (topology_source(named) if named else DEFAULT_TOPOLOGY))
    plan = named or load(_default_scenario(context))
    if calm:
        plan = plan.model_copy(update={"links": ()})
    if scale is not None:
        settings["containers"] = modelled(scale, len(plan.cargo))
    try:
        every = parse_duration(interval) if interval else None
    except ValueError as error:
        raise ConfigurationError(f"--interval {interval}: {error}") from None
    return context, Voyage(plan, context.topology, reading_interval=every, **settings)


def recorded(topology: str | None, path: Path, *, calm: bool) -> tuple[Context, Replay]:
    """A recorded voyage, read to its end, and where it sails."""
    from simulators.recording.read import Replay, read_header

    context = open_topology(topology or read_header(path).topology)
    return context, Replay(path, context.topology, calm=calm)


@contextmanager
def recording(trip: Course, path: Path | None, *, with_bad: bool) -> Iterator[Course]:
    """The voyage, written into a file as it sails when there is one to write."""
    from simulators.recording.write import recording

    if path is None:
        yield trip
        return
    recorded = None
    try:
        with recording(trip, path, with_bad=with_bad) as recorded:
            yield recorded
    finally:
        if recorded is not None and recorded.whole:
            errors.print(f"recording: {escape(str(path))}, {path.stat().st_size:,} bytes")


def utc(start: dt.datetime | None) -> dt.datetime | None:
    return start.replace(tzinfo=dt.UTC) if start else None


def run_model(trip: Course, *, quiet: bool) -> None:
    """Take every step, for what is done with it on its way."""
    with _modelling(trip, quiet=quiet) as progress:
        for count, _ in enumerate(trip.steps()):
            if count % 5_000 == 0:
                progress(count)


def size_fleet(trip: Voyage, containers: int, *, as_json: bool) -> None:
    """The size of a fleet, by the model alone."""
    import msgspec

    from simulators.scale.sizing import size
    from simulators.scale.table import as_tables

    with _modelling(trip, quiet=as_json) as progress:
        found = size(trip, containers, progress)
    emit(msgspec.to_builtins(found), as_json=as_json, render=lambda: console.print(as_tables(found)))


def show_scenarios(*, as_json: bool) -> None:
    """The shipped scenarios."""
    from simulators.scenario_list import as_table, described

    found = described()
    emit(found, as_json=as_json, render=lambda: console.print(as_table(found)))


@contextmanager
def _modelling(trip: Course, *, quiet: bool) -> Iterator[Any]:
    columns = (SpinnerColumn(), TextColumn("running the model"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=quiet or not errors.is_terminal) as progress:
        task = progress.add_task("", total=trip.expected_messages())
        yield lambda done: progress.update(task, completed=done)


def _default_scenario(context: Context) -> str:
    """The shipped scenario that sails on this topology: its first story where it has several."""
    from simulators.scenario_file import FIRST, load, shipped

    fitting = [name for name in shipped() if load(name).topology == context.topology.name]
    if not fitting:
        raise ConfigurationError(
            f"no shipped scenario sails on topology {context.topology.name!r}",
            hint=f"name one with --scenario; shipped: {', '.join(shipped())}",
        )
    return min(fitting, key=lambda name: (name not in FIRST, name))
