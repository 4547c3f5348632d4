"""What records say never steers a terminal: control characters are replaced in one place, whatever prints them."""

from __future__ import annotations

import ast
import csv
import datetime as dt
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

import fairlead
from acl.kafka import Received
from fairlead.cli import console as terminal
from fairlead.cli.commands import alert as alert_command
from fairlead.cli.commands import tables
from fairlead.cli.commands.custody import render as custodyshow
from fairlead.cli.commands.feed import as_line
from fairlead.cli.console import SafeConsole, output, printable, show_error, telling
from fairlead.errors import UnavailableError

CLEAR, TITLE, CSI = "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m"
HOSTILE = f"box{CLEAR}{TITLE}{CSI}\x08\x7f\rnew\u202efig"
STEERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202e]|\rnew|\x1b(?!\[[0-9;?]*[a-zA-Z])|\x1b\[2J")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal gets of both consoles, with colours."""
    got = io.StringIO()
    made = SafeConsole(file=got, force_terminal=True, width=400, color_system="standard")
    for name in ("console", "errors"):
        monkeypatch.setattr(terminal, name, made)
    for module in (tables, alert_command):
        monkeypatch.setattr(module, "console", made)
    return got


def in_table() -> None:
    table = Table("a", HOSTILE)
    table.add_row(escape(HOSTILE), Text(HOSTILE, style="red"))
    terminal.console.print(table)


def in_progress() -> None:
    with Progress(console=terminal.errors) as progress:
        progress.add_task(escape(HOSTILE), total=1)


def in_status() -> None:
    with telling(quiet=False) as tell:
        tell(HOSTILE)


def in_an_error(as_json: bool) -> None:
    show_error(UnavailableError(HOSTILE, hint=HOSTILE, log=HOSTILE), as_json=as_json)


def in_strays() -> None:
    log = {
        "log": HOSTILE, "holder": HOSTILE, "term": 1, "readings": 2, "oldest_age_seconds": 5, "kept_at": {HOSTILE: 2},
        "events": [{"event_id": HOSTILE, "kept_at": HOSTILE, "received_date_time": "2026-03-01T00:00:00Z"}],
    }  # fmt: skip
    ledgers = {
        "read": [],
        "damaged": [{"ledger": HOSTILE, "offset": 1, "problem": HOSTILE}],
        "missing": [],
        "refused": [HOSTILE],
    }
    custodyshow.show_strays({"at": HOSTILE, "logs": [log], "ledgers": ledgers}, terminal.console)


WAYS: dict[str, Callable[[], None]] = {
    "text": lambda: terminal.console.print(escape(HOSTILE), soft_wrap=True),
    "markup": lambda: terminal.console.print(f"[bold]{escape(HOSTILE)}[/]"),
    "Text": lambda: terminal.console.print(Text(HOSTILE)),
    "table": in_table,
    "progress": in_progress,
    "status": in_status,
    "error": lambda: in_an_error(False),
    "error as JSON": lambda: in_an_error(True),
    "rows": lambda: tables.show_rows(["a", "b"], [[HOSTILE, dt.date(2026, 3, 1)]]),
    "strays": in_strays,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_text_steers_the_terminal(way: Callable[[], None], shown: io.StringIO) -> None:
    way()
    text = shown.getvalue()
    assert "box" in text
    assert not STEERS.search(text), repr(STEERS.search(text))


def test_the_test_sees_what_plain_rich_lets_through() -> None:
    got = io.StringIO()
    Console(file=got, force_terminal=True, width=400).print(Text(HOSTILE))
    assert STEERS.search(got.getvalue())


def test_colours_tabs_and_lines_stay(shown: io.StringIO) -> None:
    terminal.console.print("[red]warm[/]\nnext")
    assert shown.getvalue() == "\x1b[31mwarm\x1b[0m\nnext\n"
    assert printable("a\tb\r\nc\n") == "a\tb\r\nc\n"
    assert printable("ün\u4e2d🚢") == "ün\u4e2d🚢"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_csv_and_json_are_exact_for_programs_and_safe_on_terminals(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    csv.writer(output).writerow([HOSTILE, "b"])
    text = capsys.readouterr().out
    (row,) = csv.reader(io.StringIO(text, newline=""))
    assert row == [printable(HOSTILE) if is_terminal else HOSTILE, "b"]


def test_a_line_of_a_feed_has_no_escape_sequence(shown: io.StringIO) -> None:
    record = Received("feeds.ducks", 1, 0, HOSTILE.encode(), HOSTILE.encode(), ())
    terminal.console.print(escape(as_line(record)), soft_wrap=True)
    assert not STEERS.search(shown.getvalue())


def test_nothing_else_writes_to_the_terminal() -> None:
    """Only ``fairlead.cli.console`` makes consoles and writes to standard output and error."""
    root = Path(fairlead.__file__).parents[1]
    found = []
    for folder in ("fairlead", "acl", "simulators", "topologies", "replication", "edge", "notify"):
        for file in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                    *("Console", "print", "typer.echo", "click.echo", "sys.stdout.write", "sys.stderr.write"),
                ):
                    found.append(f"{file.relative_to(root)}: {ast.unparse(node.func)}")
    assert found == ["fairlead/cli/console.py: sys.stdout.write"]


class Interrupted(io.StringIO):
    """A terminal at which Ctrl-C comes when the first text has been written."""

    came = False

    def flush(self) -> None:
        if not self.came:
            self.came = True
            raise KeyboardInterrupt


def test_a_text_at_which_ctrl_c_comes_is_written_once() -> None:
    written = Interrupted()
    made = SafeConsole(file=written)
    with pytest.raises(KeyboardInterrupt):
        made.print("3 ACLs of ducks revoked")
    made.print("interrupted")
    assert written.getvalue() == "3 ACLs of ducks revoked\ninterrupted\n"
