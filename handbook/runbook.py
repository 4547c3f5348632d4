"""``docs/runbook-reference.md``: every state, alarm, alert, metric and error, what it means and what to do.

What there is comes from the code (``handbook.inventory``), the words from ``runbook.yaml`` and, where the code itself
tells people what to do, from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from handbook import inventory
from handbook.markdown import cell, code, generated_by, plain, table
from replication.states import LogState, remedy

PAGE: Final = "runbook-reference.md"
_WORDS: Final = Path(__file__).with_name("runbook.yaml")
_ABOUT: Final = """\
Every state, alarm, alert, figure and error that an operator may meet, with what to do. For what to look at first, and
for whole situations (a site is gone, a disk is full), see the [runbook](runbook.md). What there is is taken from the
code; a test fails when something has no entry here."""
_METRICS: Final = """\
## Metrics

Prometheus, from `fairlead replicate --metrics-port` and `fairlead bridge --metrics-port`; labels in
[replication](replication.md#metrics-and-memory) and [edge](edge.md#metrics)."""
_ERRORS: Final = """\
## Errors

Every error says what happened, why, and what to do; `--json` has its fields. *Again* says whether the same command, or
the service by itself, may succeed later without anybody changing anything."""
_TITLES: Final = {
    "log": ("Log", "Of one log at one site: `fairlead status`, `fairlead link describe`, metric `fairlead_logs`."),
    "link": ("Link", "Of one link: `fairlead link list`, metric `fairlead_link_state`."),
    "group": ("Consumer group", "Of one partition of a group that follows a link: `fairlead link describe`."),
    "custody": (
        "Custody",
        "Of a container's log at one site: counts in `fairlead status --json` (`bridge.custody`).",
    ),
    "job": ("Job", "Of one of shore's jobs: `fairlead shore status`."),
    "reader": ("Reader", "Of somebody who can read a container: `fairlead acl audit`."),
    "plan": ("Saved plan", "Of a plan of access rules at one site: `fairlead acl apply FILE`."),
    "dead letter": ("Dead letter", "Why a message went to `deadletters.SITE`: `fairlead bridge replay --dry-run`."),
    "alert": ("Alert", "What detection raises: `fairlead alert list`; limits and sources in [edge](edge.md#alerts)."),
}


class Entry(NamedTuple):
    """One thing of the code, ``missing`` when the runbook has no words on it."""

    section: str
    name: str
    missing: bool


def words() -> dict[str, Any]:
    """The hand-written part."""
    found: dict[str, Any] = yaml.safe_load(_WORDS.read_text(encoding="utf-8"))
    return found


def entries(written: Mapping[str, Any]) -> Iterator[Entry]:
    """Everything that the code has, and whether there are words on it."""
    for group, states in inventory.GROUPS.items():
        there = written["states"].get(group, {})
        yield from (Entry(group, str(state), not _told(there.get(str(state)))) for state in states)
    for section, names in _rest().items():
        yield from (Entry(section, str(name), not _told(written[section].get(name))) for name in names)


def strangers(written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Words on something that the code does not have."""
    known = {(entry.section, entry.name) for entry in entries(written)}
    for group, states in written["states"].items():
        yield from ((group, name) for name in states if (group, name) not in known)
    for section in _rest():
        yield from ((section, str(name)) for name in written[section] if (section, str(name)) not in known)


def page() -> str:
    """The whole page."""
    written = words()
    if missing := [f"{entry.section}: {entry.name}" for entry in entries(written) if entry.missing]:
        raise LookupError(f"{_WORDS.name} has no words on {', '.join(missing)}")
    parts = [generated_by(__name__), "# States, alarms, metrics, errors", _ABOUT]
    for group, states in inventory.GROUPS.items():
        title, where = _TITLES[group]
        parts.append(f"## {title}\n\n{where}")
        parts += [_state(group, str(state), written["states"][group][str(state)]) for state in states]
    parts += [
        _alarms(written),
        *_rules(written),
        _metrics(written),
        _figures(written),
        _exits(written),
        *_errors(written),
    ]
    return "\n\n".join(parts) + "\n"


def _rest() -> dict[str, tuple[Any, ...]]:
    return {
        "alarms": inventory.alarms(),
        "rules": inventory.rules(),
        "metrics": tuple(metric.name for metric in inventory.metrics()),
        "figures": inventory.figures(),
        "errors": tuple(error.name for error in inventory.errors()),
        "exits": inventory.exit_codes(),
    }


def _told(found: object) -> bool:
    """Whether an entry has all its words."""
    texts = found if isinstance(found, list) and len(found) == 2 else [found]
    return all(isinstance(text, str) and text for text in texts)


def _state(group: str, name: str, written: list[str]) -> str:
    meaning, what = written
    text = f"### {group}: {name}\n\n{plain(meaning)}\n\n**What to do:** {plain(what)}"
    hint = remedy(LogState(name)) if group == "log" else ""
    return f"{text}\n\n**As `fairlead status` says it:** {plain(_typed(hint))}." if hint else text


def _typed(hint: str) -> str:
    """Commands in quotes as code."""
    return "`".join(hint.split("'")) if hint.count("'") % 2 == 0 else hint


def _alarms(written: Mapping[str, Any]) -> str:
    rows = ([code(name), *map(cell, written["alarms"][name])] for name in inventory.alarms())
    head = ("alarm", "means", "what to do")
    return f"## Alarms\n\nIn `fairlead status`; with `--check` it ends with 1.\n\n{table(head, rows)}"


def _rules(written: Mapping[str, Any]) -> Iterator[str]:
    rows = [[code(name), *map(cell, written["rules"][name])] for name in inventory.rules()]
    if rows:
        yield f"## Alert rules\n\nOf Prometheus.\n\n{table(('rule', 'means', 'what to do'), rows)}"


def _metrics(written: Mapping[str, Any]) -> str:
    rows = (
        [
            code(_exposed(metric.name, metric.type)),
            cell(metric.documentation),
            *map(cell, written["metrics"][metric.name]),
        ]
        for metric in inventory.metrics()
    )
    head = ("metric", "what it is", "what to look for", "what to do")
    return f"{_METRICS}\n\n{table(head, rows)}"


def _exposed(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def _figures(written: Mapping[str, Any]) -> str:
    rows = ([code(name), *map(cell, written["figures"][name])] for name in inventory.figures())
    about = "Of a site's bridge since it started: `fairlead status --json`, `bridge`."
    return f"## Bridge\n\n{about}\n\n{table(('figure', 'what it is', 'what to look for'), rows)}"


def _exits(written: Mapping[str, Any]) -> str:
    rows = ([str(number), *map(cell, written["exits"][number])] for number in inventory.exit_codes())
    return f"## Exit codes\n\n{table(('code', 'means', 'what to do'), rows)}"


def _errors(written: Mapping[str, Any]) -> Iterator[str]:
    yield _ERRORS
    for folder in inventory.FOLDERS:
        found = [error for error in inventory.errors() if error.module.partition(".")[0] == folder]
        rows = (
            [
                code(error.name),
                str(error.exit_code),
                "yes" if error.retriable else "no",
                cell(error.meaning),
                cell(written["errors"][error.name]),
            ]
            for error in found
        )
        if found:
            yield f"### In `{folder}`\n\n{table(('error', 'exit', 'again', 'means', 'what to do'), rows)}"
