"""The whole examination: the machine is looked at, and each finding made of what was found."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairlead.doctor import limits, probe, programs, surroundings
from fairlead.doctor.model import Finding, Needs, Verdict
from fairlead.errors import UnavailableError
from fairlead.jars import ensure_jars
from fairlead.local import ports
from fairlead.local.layout import LocalSite
from fairlead.local.processes import find
from fairlead.local.state import SiteState, read_state

USUAL_LOGS = 1_000


def needs(topology: str, folder: Path, sites: Sequence[str], logs: int | None = None) -> Needs:
    """What some sites of a topology need here.

    Args:
        sites: Those that run on this machine.
        logs: How many logs each broker is to hold; by default what there is already, at least 1,000.
    """
    states = _states(folder)
    brokers = {name: states[name].brokers if name in states else () for name in sites}
    count = sum(max(1, len(each)) for each in brokers.values())
    running = sum(
        find(LocalSite(folder, name).pid_file("kafka", broker.number)) is not None
        for name, each in brokers.items()
        for broker in each
    )
    wanted = logs if logs is not None else max(USUAL_LOGS, probe.logs_on_disk(folder, states))
    return Needs(topology, tuple(sites), count, count - running, wanted)


def examine(needed: Needs, folder: Path, *, foreign: Sequence[str] = (), download: bool = False) -> Iterator[Finding]:
    """All findings, one after the other as they are made.

    Args:
        folder: The topology's state folder; need not exist.
        foreign: Sites of the topology that run elsewhere.
        download: Fetch missing jars now, and tell what came of it.
    """
    states = _states(folder)
    yield programs.python(probe.python_version(), *probe.packages())
    yield programs.java(probe.java())
    yield programs.mosquitto(*probe.mosquitto_version())
    yield _jars(download=download)
    yield programs.docker(*probe.docker())
    yield limits.open_files(*probe.open_files(), needed)
    yield limits.memory_maps(probe.memory_maps(), needed)
    yield limits.memory(*probe.memory(), needed)
    yield limits.disk(probe.disk(folder), needed)
    yield surroundings.ports(
        *probe.port_facts(folder, states, 3 * needed.brokers), probe.ephemeral_ports(), (ports.FIRST, ports.LAST)
    )
    yield surroundings.clock(probe.clock(folder, foreign))
    yield surroundings.letters(probe.letters(), str(folder))
    yield surroundings.paths(probe.place(folder))
    yield surroundings.certificates(probe.certificates(folder, states), dt.datetime.now(dt.UTC))


def _states(folder: Path) -> dict[str, SiteState]:
    return read_state(folder / "state.json").sites


def _jars(*, download: bool) -> Finding:
    found = programs.jars(*probe.jars())
    if found.verdict is Verdict.OK or not download:
        return found
    try:
        for name in probe.JAR_SETS:
            ensure_jars(name)
    except UnavailableError as error:
        return programs.download_failed(found, str(error))
    return programs.jars(*probe.jars())
