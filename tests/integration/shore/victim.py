"""Run shore in a process that a test kills: ``start`` begins one.

Arguments are JSON, HOST, PORT; the password comes on stdin.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import SecretStr

import shore
from fairlead.kafka.endpoint import KafkaEndpoint
from tests.support.patience import patient
from tests.support.shore.world import World


@contextlib.contextmanager
def start(world: World, folder: Path, *, max_records: int = 1000, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``shore run --once`` in a process of its own; kill it at the end if it still runs.

    Args:
        folder: The state folder.
        more: ``jobs`` (default: only ``readings``), ``kill_at`` (2n: it kills itself after write n, 2n + 1: before it)
            ``alerts`` (as in ``World.topology``), and fields of ``topologies.model.Shore`` (``master``, ``tables``,
            ``settings``, ``packages``).
    """
    given = {"tag": world.tag, "folder": str(folder), "max_records": max_records, **more}
    assert world.endpoint.password is not None
    host, port = world.endpoint.bootstrap[0]
    process = subprocess.Popen(  # noqa: S603  # this very interpreter
        [sys.executable, "-m", __name__, json.dumps(given), host, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdin is not None
    try:
        process.stdin.write(world.endpoint.password.get_secret_value().encode() + b"\n")
        process.stdin.close()
        yield process
    finally:
        process.kill()
        process.wait()


def main() -> None:
    given = json.loads(sys.argv[1])
    password = SecretStr(sys.stdin.readline().strip())
    endpoint = KafkaEndpoint("alpha", ((sys.argv[2], int(sys.argv[3])),), "admin", password)
    world = World(endpoint, given["tag"])
    folder = Path(given["folder"])
    topology = world.topology(alerts=given.get("alerts", False))
    assert topology.shore is not None
    where = topology.shore.model_copy(
        update={k: given[k] for k in ("master", "tables", "settings", "packages") if k in given}
    )
    topology = topology.model_copy(update={"shore": where})
    jobs, limit = given.get("jobs", ["readings"]), given["max_records"]
    with contextlib.ExitStack() as stack:
        if "kill_at" in given:
            from tests.support.crashes import Plan, die, planted

            write, before = divmod(given["kill_at"], 2)
            stack.enter_context(planted(Plan(write, "before" if before else "after", die)))
        patient(lambda: shore.run(topology, endpoint, folder, jobs, once=True, max_records=limit))


if __name__ == "__main__":
    main()
