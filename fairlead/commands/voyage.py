"""``fairlead voyage``: sail a scenario on real sites, from sensor to Delta table, and report what became of it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fairlead.commands.context import Context, JsonOption
from fairlead.commands.sites import bring_up
from fairlead.commands.voyagemake import planned, recorded, recording, run_model, show_scenarios, size_fleet, utc
from fairlead.commands.voyagesail import How, sail_and_report
from fairlead.commands.voyagesteer import VERBS, steer_voyage
from fairlead.commands.voyageworkers import phase, weather, workers
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError, ExitCode

if TYPE_CHECKING:
    from simulators.report.model import Report
    from simulators.voyage import Course


def voyage(
    topology: Annotated[
        str | None,
        typer.Argument(
            help="A shipped topology's name or a YAML file. Default: the scenario's. Or [bold]pause[/], "
            "[bold]resume[/]: the voyage that another terminal sails.",
            show_default=False,
        ),
    ] = None,
    of: Annotated[
        str | None,
        typer.Argument(help="After pause and resume, on which topology, when several are sailed.", show_default=False),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option("--scenario", help="A shipped scenario's name or a YAML file. Default: the topology's."),
    ] = None,
    containers: Annotated[
        int | None,
        typer.Option("--containers", min=1, help="Rescale the scenario's mix to this many; a ship takes 20,000."),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option("--speed", min=0.001, help="Simulated seconds per second. Default: as fast as it goes."),
    ] = None,
    realtime: Annotated[bool, typer.Option("--realtime", help="A simulated second takes a second: --speed 1.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Watch it: ships on a chart, boxes, links, alerts. Needs a terminal.")
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Everything random follows from it.  [default: 7]")] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", help="Time between two readings of a box, such as 1h.")
    ] = None,
    start: Annotated[
        dt.datetime | None,
        typer.Option(
            "--start",
            help="Moves the voyage to this time (UTC). Default: the scenario's.",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"],
        ),
    ] = None,
    with_bad: Annotated[bool, typer.Option("--with-bad", help="Mix in messages that no bridge can use.")] = False,
    report: Annotated[Path, typer.Option("--report", help="Folder for report.json and report.html.")] = Path(
        "build/voyage"
    ),
    patience: Annotated[
        float, typer.Option("--patience", min=1, help="Seconds without progress until a barrier counts as stuck.")
    ] = 90.0,
    scale: Annotated[
        int | None,
        typer.Option(
            "--scale", min=1, help="Run the model only, without sites, and tell how large a fleet of so many boxes is."
        ),
    ] = None,
    list_scenarios: Annotated[
        bool, typer.Option("--list-scenarios", help="List the shipped scenarios with what each expects, and end.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write everything that is published into this file.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --record: run the model only, without sites.")
    ] = False,
    replay: Annotated[
        Path | None, typer.Option("--replay", help="Sail what --record wrote, message by message.")
    ] = None,
    calm: Annotated[bool, typer.Option("--calm", help="Leave out the weather of links.")] = False,
    no_workers: Annotated[
        bool,
        typer.Option("--no-workers", help="Start no bridges and replicators: they run elsewhere, in containers say."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Sail a scenario: publish every reading where its box is, replicate, fill the tables, and report.

    Starts what is missing (sites, bridges, replicators) and stops the workers it started; the sites stay up. Exits
    with 1 if any line of the report is false.

    Example: fairlead voyage big-blue --containers 200 --speed 3600 --seed 7

    Example: fairlead voyage --scenario duck-voyage --scale 100000

    Example: fairlead voyage minimal --speed 7200 --live

    Example: fairlead voyage --scenario duck-voyage --record ducks.gz --dry-run
    """
    if topology in VERBS:
        steer_voyage(topology, of, as_json=as_json)
        return
    if of is not None:
        raise typer.BadParameter(f"what is {of!r}? Only pause and resume are followed by a topology", param_hint="OF")
    if list_scenarios:
        show_scenarios(as_json=as_json)
        return
    _check_options(
        ("--scale", scale, "--containers", containers, "--scale says for how many boxes"),
        ("--realtime", realtime, "--speed", speed, "--realtime is --speed 1"),
        ("--scale", scale, "--record", record, "--scale publishes nothing; --dry-run records without sites"),
        *(
            ("--replay", replay, option, value, "the recording says what was sailed")
            for option, value in {
                "--scenario": scenario,
                "--containers": containers,
                "--scale": scale,
                "--record": record,
                "--seed": seed,
                "--interval": interval,
                "--start": start,
                "--with-bad": with_bad,
            }.items()
        ),
    )
    if dry_run and record is None:
        raise ConfigurationError("--dry-run has nothing to do", hint="add --record FILE, or use --scale N")
    trip: Course
    if replay is not None:
        context, trip = recorded(topology, replay, calm=calm)
    else:
        context, made = planned(
            topology,
            scenario,
            calm=calm,
            scale=scale,
            interval=interval,
            seed=7 if seed is None else seed,
            containers=containers,
            start=utc(start),
            with_bad=with_bad,
        )
        if scale is not None:
            size_fleet(made, scale, as_json=as_json)
            return
        trip = made
    how = How(1.0 if realtime else speed, patience, live=live, quiet=as_json)
    with recording(trip, record, with_bad=with_bad) as sailed:
        if dry_run:
            run_model(sailed, quiet=as_json)
        else:
            result = _on_sites(context, sailed, how, calm=calm, elsewhere=no_workers)
    if not dry_run:
        _show(*result, report, as_json=as_json)


def _on_sites(context: Context, trip: Course, how: How, *, calm: bool, elsewhere: bool) -> tuple[Report, str]:
    """Start what is missing, sail, and report; the workers that were started are stopped."""
    from simulators.dates import check_clock

    check_clock(trip.starts, trip.ends, dt.datetime.now(dt.UTC), how.speed)
    phases: dict[str, float] = {}
    with phase(phases, "starting sites"):
        bring_up(context, list(context.topology.sites), quiet=how.quiet)
    with (
        weather(context, trip, calm=calm, elsewhere=elsewhere) as network,
        workers(context, phases, weather=network is not None, elsewhere=elsewhere),
    ):
        return sail_and_report(context, trip, how, phases, network)


def _show(made: Report, page: str, folder: Path, *, as_json: bool) -> None:
    """Write the report and print it; end with 1 when a line of it is false."""
    from simulators.report.table import as_table

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_bytes(made.to_json())
    (folder / "report.html").write_text(page, encoding="utf-8")
    emit(json.loads(made.to_json()), as_json=as_json, render=lambda: console.print(as_table(made)))
    errors.print(f"report: {escape(str(folder / 'report.json'))}, {escape(str(folder / 'report.html'))}")
    if not made.ok:
        raise typer.Exit(ExitCode.FAILED)


def _check_options(*pairs: tuple[str, object, str, object, str]) -> None:
    """Refuse two options that say the same or opposite things; 0 and False count as not given."""
    for one, given, other, also, why in pairs:
        if given not in (None, False) and also not in (None, False):
            raise ConfigurationError(f"{one} and {other} were both given", hint=f"{why}; leave out {other}")
