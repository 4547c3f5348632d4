"""A replicator in a process of its own, to be killed: FOLDER STREAM. Copies one stream from alpha to beta."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from fairlead.local.sites import LocalSites
from replication.replicator import Replicator
from topologies.model import Topology


async def main(folder: str, stream: str) -> None:
    sites = LocalSites(Path(folder))
    topology = Topology.model_validate(
        {
            "name": "victim",
            "sites": {"alpha": {"kind": "datacentre"}, "beta": {"kind": "datacentre"}},
            "streams": {stream: {}},
            "links": [{"from": "alpha", "to": "beta", "streams": {stream: "all"}}],
        }
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sys.stdout.write("running\n")
    sys.stdout.flush()
    await Replicator(topology, "beta", sites.kafka("beta", "admin"), lambda site: sites.kafka(site, "admin")).run(stop)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
