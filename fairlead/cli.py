"""The ``fairlead`` command: knows the commands of ``fairlead.commands``, which are imported when they are used, and
turns errors into exit codes.

Exit codes: 0 done; 1 the result is bad (a report line is false, logs differ); 2 wrong options; 3 a topology, scenario
or setting is wrong; 4 a site or tool could not be reached or started; 5 refused; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, Final

import typer

from fairlead.console import console, errors, show_error
from fairlead.errors import ExitCode, FairleadError
from fairlead.lazy import Entry, lazy_group, load

COMMANDS: Final = {
    "up": Entry(
        "fairlead.commands.sites",
        "up",
        "Start sites: each its own Kafka and Mosquitto on this machine, with users and access rules.",
    ),
    "down": Entry(
        "fairlead.commands.sites",
        "down",
        "Stop sites and the workers that serve them, cleanly. Data and ports are kept, unless --purge is given.",
    ),
    "status": Entry(
        "fairlead.commands.sites",
        "status",
        "Show each site: whether it is up, versions, logs, records, links and their lag, logs in trouble, workers.",
    ),
    "voyage": Entry(
        "fairlead.commands.voyage",
        "voyage",
        "Sail a scenario: publish every reading where its box is, replicate, fill the tables, and report.",
    ),
    "bridge": Entry(
        "fairlead.commands.bridge",
        "app",
        "Bring messages from a site's MQTT broker into its logs; acknowledge each when Kafka has it.",
    ),
    "replicate": Entry(
        "fairlead.commands.replicate",
        "replicate",
        "Keep a site's copies of other sites' logs up to date, until Ctrl-C.",
    ),
    "tables": Entry(
        "fairlead.commands.tables",
        "tables",
        "List the tables with rows and version, or one table's columns with their units.",
    ),
    "sql": Entry("fairlead.commands.tables", "sql", "Run one SQL query over the tables; works while shore writes."),
    "report": Entry("fairlead.commands.report", "app", "Reports out of the tables: one container, one port."),
    "feed": Entry(
        "fairlead.commands.feed",
        "feed",
        "Read as a customer: its feed, or the streams of its own boxes when it has no feed. Ctrl-C stops.",
    ),
    "alert": Entry(
        "fairlead.commands.alert",
        "app",
        "Alerts: what detection has found, its rules, and the draft report of containers lost at sea.",
    ),
    "audit": Entry(
        "fairlead.commands.audit",
        "audit",
        "Compare every log that two sites have in common, over the offsets that both have.",
    ),
    "link": Entry("fairlead.commands.link", "app", "Links: their state, pause and resume, promote, failover, reverse."),
    "custody": Entry(
        "fairlead.commands.custody",
        "app",
        "Custody: who may append to a container's log, grants and seizures by hand, strays.",
    ),
    "shore": Entry("fairlead.commands.shore", "app", "Tables and customers' feeds from the logs, by PySpark."),
    "compose": Entry("fairlead.commands.compose", "app", "A topology as containers: a project for docker compose."),
    "acl": Entry(
        "fairlead.commands.acl",
        "app",
        "Who may do what with which topic: plan, apply, explain, and find what someone else changed.",
    ),
    "devices": Entry(
        "fairlead.commands.devices",
        "app",
        "Devices: an MQTT password for each box, ship and terminal, with which it may publish on its own topics only.",
    ),
    "certs": Entry(
        "fairlead.commands.certs",
        "app",
        "Certificates: a small authority for trying out, what is issued, when it ends, and other ones while all runs.",
    ),
    "topology": Entry(
        "fairlead.commands.topology",
        "app",
        "Check, draw and list topologies: who exists, and what may go where.",
    ),
    "doctor": Entry(
        "fairlead.commands.doctor",
        "doctor",
        "Examine this machine: programs, ports, limits, clock, disk; say what is needed, why, and what to do.",
    ),
}


def _loaded(name: str, entry: Entry) -> Any:
    """A command for whoever uses it; for a shell that completes one, only what that takes."""
    if os.environ.get("_FAIRLEAD_COMPLETE", "").startswith("complete_"):
        from fairlead.completion.light import command

        return command(name, entry)
    return load(name, entry)


app = typer.Typer(
    cls=lazy_group(COMMANDS, _loaded),
    name="fairlead",
    help="Container telemetry in identical logs across ships, ports and headquarters, on stock Apache Kafka.",
    epilog="Exit codes: 0 done, 1 bad result, 2 wrong options, 3 wrong configuration, 4 unavailable, 5 refused, "
    "130 interrupted. A first look: fairlead voyage minimal, or make demo.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_versions(wanted: bool) -> None:
    if not wanted:
        return
    from fairlead.versions import versions  # reads the lock of jars

    own, *others = versions().items()
    console.print(" ".join(own))
    console.print(", ".join(f"{name.capitalize()} {version}" for name, version in others))
    raise typer.Exit


@app.callback()
def _before(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_versions, help="Show versions: Fairlead, Kafka, Spark."
        ),
    ] = False,
) -> None:
    """Typer takes an application without commands of its own for a group only if it has this."""


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; never raises but for bugs."""
    as_json = "--json" in (arguments if arguments is not None else sys.argv[1:])
    try:
        app(args=arguments)  # typer shows usage errors itself and ends with SystemExit
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else ExitCode.OK
    except FairleadError as error:
        show_error(error, as_json=as_json)
        return error.exit_code
    except KeyboardInterrupt:
        errors.print("interrupted")
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def main() -> None:
    """Entry point of the installed ``fairlead`` script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
