"""A process that runs shore and is killed by the test: arguments JSON, HOST, PORT; the password comes on stdin.

In the JSON: ``tag``, ``folder``, ``max_records``, and optionally ``jobs``, ``kill_at`` (it kills itself at that write)
and what ``topologies.model.Shore`` has (``master``, ``storage``, ``settings``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import SecretStr

import shore
from fairlead.endpoint import KafkaEndpoint
from tests.integration.shore.world import World


def main() -> None:
    given = json.loads(sys.argv[1])
    password = SecretStr(sys.stdin.readline().strip())
    endpoint = KafkaEndpoint("alpha", ((sys.argv[2], int(sys.argv[3])),), "admin", password)
    world = World(endpoint, given["tag"])
    folder = Path(given["folder"])
    topology = world.topology()
    assert topology.shore is not None
    where = topology.shore.model_copy(update={k: given[k] for k in ("master", "storage", "settings") if k in given})
    topology = topology.model_copy(update={"shore": where})
    jobs, limit = given.get("jobs", ["readings"]), given["max_records"]
    if "kill_at" in given:  # kills itself at that write
        from tests.support.crashes import Plan, die, planted

        with planted(Plan(given["kill_at"] // 2, "before" if given["kill_at"] % 2 else "after", die)):
            shore.run(topology, endpoint, folder, jobs, once=True, max_records=limit)
    shore.run(topology, endpoint, folder, jobs, once=True, max_records=limit)


if __name__ == "__main__":
    main()
