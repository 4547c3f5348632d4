"""Run ``fairlead`` for tests that cut links: a replicator's connections to its sources go through the test's proxies.

``FAIRLEAD_TEST_WAYS`` names a file that lists the proxies: for each target, [host, port, proxy's host, proxy's port] of
every broker that it copies from. The proxies run in the test's process, so a cut outlives a replicator that is killed.

On SIGUSR1 the process logs what each of its tasks waits for.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Final

from fairlead.cli.app import main
from tests.support.chaos import address_overrides

WAYS: Final = "FAIRLEAD_TEST_WAYS"


def _tell(_number: int, _frame: object) -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()


def run(command: str, target: str) -> None:
    signal.signal(signal.SIGUSR1, _tell)
    if command != "replicate":
        main()
        return
    rows = json.loads(Path(os.environ[WAYS]).read_text(encoding="utf-8"))[target]
    with address_overrides({(host, port): (proxy, number) for host, port, proxy, number in rows}):
        main()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[sys.argv.index("--site") + 1])
