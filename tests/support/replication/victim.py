"""Run a replicator that tests kill: FOLDER STREAM [SETTING...]. It copies a stream from alpha to beta.

Settings: ``to=SITE`` is another target, ``status=FILE`` a status file, ``group=NAME`` a group that shares the logs,
``clock=SECONDS`` makes the process's wall clock jump back and forth by that much repeatedly. ``lives=1``: every line on
stdin starts a replicator in a fork of this process; it prints the fork's pid, and how it ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from fairlead.local.sites import LocalSites
from replication.replicator import Replicator
from tests.support import clock
from topologies.model import Topology


def topology(stream: str, target: str = "beta") -> Topology:
    return Topology.model_validate(
        {
            "name": "victim",
            "sites": {site: {"kind": "datacentre"} for site in ("alpha", target)},
            "streams": {stream: {}},
            "links": [{"from": "alpha", "to": target, "streams": {stream: "all"}}],
        }
    )


async def main(folder: str, stream: str, *settings: str) -> None:
    sites = LocalSites(Path(folder))
    chosen = dict(each.split("=", 1) for each in settings)
    target, status = chosen.get("to", "beta"), chosen.get("status")
    clock.jump(float(chosen.get("clock", 0)))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    if chosen.get("lives"):
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)  # the test has ended
    say(f"running {os.getpid()}" if chosen.get("lives") else "running")
    replicator = Replicator(
        topology(stream, target),
        target,
        sites.kafka(target, "admin"),
        lambda site: sites.kafka(site, "admin"),
        status_file=Path(status) if status else None,
        group=chosen.get("group"),
    )
    await replicator.run(stop)


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def live(*arguments: str) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(main(*arguments))
            return
        say(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")


if __name__ == "__main__":
    if "lives=1" in sys.argv:
        live(*sys.argv[1:])
    else:
        asyncio.run(main(*sys.argv[1:]))
