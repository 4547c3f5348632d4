"""What an operator may meet, looked up in the code: states, alarms, reasons, metrics, errors. The runbook has a word on
each.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, get_args

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import acl.audit
import acl.stale
import edge.holdings
import edge.messages
import edge.metrics
import edge.strayage
import replication.groups
import replication.states
import shore.status
from edge.detection.watch import default_rules
from edge.exported import BridgeCollector
from fairlead.errors import ExitCode, FairleadError
from replication.brokers import BrokersCollector
from replication.metrics import ReplicationCollector

FOLDERS: Final = ("fairlead", "topologies", "edge", "replication", "shore", "acl", "simulators")

GROUPS: Final[dict[str, Iterable[str]]] = {
    "log": replication.states.LogState,
    "link": (*replication.states.LinkState, "stopped"),
    "group": replication.groups.LogState,
    "custody": edge.holdings.Custody,
    "job": get_args(shore.status.State),
    "reader": acl.audit.Verdict,
    "plan": acl.stale.State,
    "dead letter": edge.messages.Reason,
    "alert": (*dict.fromkeys(rule.kind for rule in default_rules()), edge.strayage.KIND),
}
"""The named states and reasons by what they are of."""


def _nobody(_: object) -> NoReturn:
    raise AssertionError("there is no site to ask")


COLLECTORS: Final[dict[type[Collector], Callable[[], Collector]]] = {
    ReplicationCollector: lambda: ReplicationCollector(lambda: []),
    BrokersCollector: lambda: BrokersCollector({}, _nobody),
    BridgeCollector: lambda: BridgeCollector(lambda: []),
}
"""Every collector of Prometheus metrics, and how to have one of nothing."""


class Error(NamedTuple):
    """An error class. ``meaning`` is the beginning of its docstring."""

    name: str
    module: str
    exit_code: int
    retriable: bool
    meaning: str


@cache
def import_classes_below(*bases: str) -> frozenset[str]:
    """Import every module that has a class below one of these, by the names in their sources; the modules' names.

    Importing all six hundred instead would take ten seconds.
    """
    found = [each for folder in FOLDERS for each in _classes(folder)]
    names, before = set(bases), 0
    while len(names) != before:
        before = len(names)
        names |= {name for _, name, above in found if above & names}
    wanted = frozenset(module for module, name, _ in found if name in names)
    for module in sorted(wanted):
        importlib.import_module(module)
    return wanted


def _classes(folder: str) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Module, name and names of bases of every class in a folder."""
    root = Path(str(importlib.import_module(folder).__file__)).parent
    for file in sorted(root.rglob("*.py")):
        module = ".".join((folder, *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for name, above in re.findall(r"^class (\w+)\(([^)]+)\):", file.read_text(encoding="utf-8"), re.MULTILINE):
            yield module, name, frozenset(re.findall(r"(\w+)(?=,|$)", above))


@cache
def errors() -> tuple[Error, ...]:
    """All errors that Fairlead raises on purpose, by folder and name."""
    import_classes_below("FairleadError")
    found = [_error(each) for each in _below(FairleadError) if each.__module__.partition(".")[0] in FOLDERS]
    return tuple(sorted(found, key=lambda each: (FOLDERS.index(each.module.partition(".")[0]), each.name)))


def collectors() -> frozenset[type[Collector]]:
    """The classes of our own that make metrics."""
    import_classes_below("Collector")
    return frozenset(each for each in _below(Collector) if each.__module__.partition(".")[0] in FOLDERS)


def metrics() -> Iterator[Metric]:
    """All Prometheus metrics, without samples."""
    for make in COLLECTORS.values():
        yield from make().collect()


def exit_codes() -> tuple[int, ...]:
    """What a command can end with."""
    return tuple(code for name, code in vars(ExitCode).items() if not name.startswith("_"))


def figures() -> tuple[str, ...]:
    """The figures of a bridge in ``fairlead status --json``."""
    return tuple(edge.metrics.Metrics().snapshot())


def alarms() -> tuple[str, ...]:
    """The alarms of ``fairlead status``, as they stand in the code of the commands."""
    commands = Path(str(inspect.getsourcefile(importlib.import_module("fairlead.commands")))).parent
    text = "".join(file.read_text(encoding="utf-8") for file in sorted(commands.glob("*.py")))
    return tuple(sorted(set(re.findall(r'"alarm": "([a-z-]+)"', text))))


def rules() -> tuple[str, ...]:
    """The alert rules for Prometheus that come with the containers."""
    folder = Path(__file__).parents[1] / "deploy"
    text = "".join(file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.y*ml*")))
    return tuple(dict.fromkeys(re.findall(r"^\s*- alert: [\"']?(\w+)", text, re.MULTILINE)))


def _error(kind: type[FairleadError]) -> Error:
    text = re.split(r"\n\s*\n", inspect.cleandoc(kind.__doc__ or ""))[0]
    return Error(
        kind.__name__, kind.__module__, kind.exit_code, kind.retriable, " ".join(text.replace("``", "`").split())
    )


def _below(kind: type[Any]) -> set[type[Any]]:
    found: set[type[Any]] = set()
    for each in kind.__subclasses__():
        found |= {each, *_below(each)}
    return found
