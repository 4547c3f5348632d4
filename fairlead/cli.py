"""The ``fairlead`` command: registers the commands of ``fairlead.commands`` and turns errors into exit codes.

Exit codes: 0 done; 1 the result is bad (a report line is false, logs differ); 2 wrong options; 3 a topology, scenario
or setting is wrong; 4 a site or tool could not be reached or started; 5 refused; 130 interrupted.
"""

from __future__ import annotations

import sys

import typer

from fairlead.commands import acl, audit, bridge, feed, link, replicate, shore, sites, tables, topology, voyage
from fairlead.console import errors, show_error
from fairlead.errors import ExitCode, FairleadError

app = typer.Typer(
    name="fairlead",
    help="Container telemetry in identical logs across ships, ports and headquarters, on stock Apache Kafka.",
    epilog="Exit codes: 0 done, 1 bad result, 2 wrong options, 3 wrong configuration, 4 unavailable, 5 refused, "
    "130 interrupted. A first look: fairlead voyage minimal, or make demo.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(sites.up)
app.command()(sites.down)
app.command()(sites.status)
app.command()(voyage.voyage)
app.command()(bridge.bridge)
app.command()(replicate.replicate)
app.add_typer(link.app, name="link")
app.add_typer(shore.app, name="shore")
app.command()(tables.tables)
app.command()(tables.sql)
app.command()(feed.feed)
app.add_typer(acl.app, name="acl")
app.command()(audit.audit)
app.add_typer(topology.app, name="topology")


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
