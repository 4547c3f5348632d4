"""The ``fairlead`` command: import each command at its first use; turn errors into exit codes.

Exit codes: 0 done; 1 the result is bad (a report line is false, logs differ); 2 wrong options; 3 a topology, scenario
or setting is wrong; 4 a site or tool could not be reached or started; 5 refused; 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from fairlead.cli.console import console, errors, show_error
from fairlead.cli.lazy import Entry, lazy_group
from fairlead.errors import ExitCode, FairleadError

RUN, READ, OPERATE, ACCESS = "Run it locally", "Read data", "Operate", "Access and configuration"
COMMANDS: Final = {
    "up": Entry(
        "fairlead.cli.commands.sites.local", "up", "Start sites: a Kafka and a Mosquitto each, on this machine.", RUN
    ),
    "down": Entry(
        "fairlead.cli.commands.sites.local",
        "down",
        "Stop sites and their workers. Data and ports are kept unless --purge is given.",
        RUN,
    ),
    "status": Entry(
        "fairlead.cli.commands.sites.local", "status", "Show sites, links, lag, logs in trouble, and workers.", RUN
    ),
    "voyage": Entry(
        "fairlead.cli.commands.voyage.app",
        "app",
        "Simulate ships, containers and trouble on real sites; report what arrived.",
        RUN,
    ),
    "compose": Entry("fairlead.cli.commands.compose", "app", "Render a topology as a Docker Compose project.", RUN),
    "doctor": Entry(
        "fairlead.cli.commands.doctor",
        "doctor",
        "Check that this machine has the Java, Mosquitto, jars, ports, open files and disk that a topology needs.",
        RUN,
    ),
    "tables": Entry(
        "fairlead.cli.commands.tables",
        "tables",
        "List the Delta tables, or show one table's columns with their units.",
        READ,
    ),
    "sql": Entry(
        "fairlead.cli.commands.tables", "sql", "Run one SQL query over the tables; works while shore writes.", READ
    ),
    "report": Entry("fairlead.cli.commands.report", "app", "Write a report about one container or one port.", READ),
    "feed": Entry(
        "fairlead.cli.commands.feed",
        "feed",
        "Read a customer's feed, or its containers' logs, as that customer.",
        READ,
    ),
    "board": Entry(
        "fairlead.cli.commands.board",
        "board",
        "Serve pages for a browser: the fleet, ports, containers, and each customer's own containers.",
        READ,
    ),
    "alert": Entry(
        "fairlead.cli.commands.alert",
        "app",
        "List alerts, acknowledge or end one, show their thresholds, draft the report of lost containers.",
        READ,
    ),
    "bridge": Entry(
        "fairlead.cli.commands.bridge",
        "app",
        "Append readings from a site's MQTT broker to its logs; acknowledge each when Kafka has it.",
        OPERATE,
    ),
    "replicate": Entry(
        "fairlead.cli.commands.replicate", "replicate", "Copy other sites' logs to a site, until Ctrl-C.", OPERATE
    ),
    "shore": Entry(
        "fairlead.cli.commands.shore.app",
        "app",
        "Fill Delta tables and customers' feeds from the logs, with PySpark.",
        OPERATE,
    ),
    "notify": Entry(
        "fairlead.cli.commands.notify",
        "app",
        "Send alerts by e-mail, webhooks and chat; try a route; show how far each is.",
        OPERATE,
    ),
    "stream": Entry(
        "fairlead.cli.commands.stream",
        "app",
        "Show streams with their records, bytes, retention, access and consumer groups; set, delete.",
        OPERATE,
    ),
    "link": Entry(
        "fairlead.cli.commands.link",
        "app",
        "Show links and their lag; pause, resume, promote, fail over, reverse.",
        OPERATE,
    ),
    "custody": Entry(
        "fairlead.cli.commands.custody.app",
        "app",
        "Show who may append to a container's log; grant and seize by hand; list strays.",
        OPERATE,
    ),
    "audit": Entry(
        "fairlead.cli.commands.audit",
        "audit",
        "Compare two sites' copies of every shared topic, offset by offset.",
        OPERATE,
    ),
    "site": Entry("fairlead.cli.commands.sites.app", "app", "Shut out a ship that is no longer trusted.", OPERATE),
    "acl": Entry(
        "fairlead.cli.commands.acl.app", "app", "Plan, apply and explain ACLs; find what someone else changed.", ACCESS
    ),
    "devices": Entry(
        "fairlead.cli.commands.devices",
        "app",
        "Give each container, ship, terminal and booking office an MQTT password.",
        ACCESS,
    ),
    "certs": Entry(
        "fairlead.cli.commands.certs",
        "app",
        "Create a test CA, issue certificates, show when they expire, and renew them without downtime.",
        ACCESS,
    ),
    "topology": Entry("fairlead.cli.commands.topology", "app", "Check, draw and list topologies.", ACCESS),
}


app = typer.Typer(
    cls=lazy_group(COMMANDS),
    name="fairlead",
    help="Container telemetry in identical logs across ships, ports and headquarters, on stock Apache Kafka.",
    epilog="Exit codes: 0 done, 1 bad result, 2 wrong options, 3 wrong configuration, 4 unavailable, 5 refused, "
    "130 interrupted. A first look: fairlead voyage run minimal, or make demo.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_versions(wanted: bool) -> None:
    if not wanted:
        return
    from fairlead.versions import versions  # reads the lock file of jars

    own, *others = versions().items()
    console.print(" ".join(own))
    console.print(", ".join(f"{name.capitalize()} {version}" for name, version in others))
    raise typer.Exit


@app.callback()
def _before(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_show_versions,
            help="Show versions: Fairlead, Python, Kafka, Spark, Delta.",
        ),
    ] = False,
) -> None:
    """Handle ``--version``. Typer makes a group of an application without own commands only if it has a callback."""


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; raises only for bugs."""
    as_json = "--json" in (arguments if arguments is not None else sys.argv[1:])
    try:
        app(args=arguments)  # typer prints usage errors itself and ends with SystemExit
    except SystemExit as done:
        if done.code == ExitCode.INTERRUPTED:  # typer makes this of KeyboardInterrupt
            errors.print("interrupted")
        return done.code if isinstance(done.code, int) else ExitCode.OK
    except FairleadError as error:
        show_error(error, as_json=as_json)
        return error.exit_code
    except RuntimeError as error:
        if str(error) != "Query interrupted":  # DuckDB makes this of KeyboardInterrupt
            raise
        errors.print("interrupted")
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def main() -> None:
    """Entry point of the installed ``fairlead`` script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
