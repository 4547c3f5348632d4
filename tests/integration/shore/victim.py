"""A process that runs shore and is killed by the test: arguments JSON, HOST, PORT; the password comes on stdin."""

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
    shore.run(world.topology(), endpoint, folder, ["readings"], once=True, max_records=given["max_records"])


if __name__ == "__main__":
    main()
