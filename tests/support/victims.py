"""Replicator processes that tests kill (``tests.support.replication.victim``), one after another."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Self

from tests.support.waits import PATIENCE


class Victim:
    """Run one replicator at a time, in processes forked from one that has imported everything already."""

    def __init__(self, folder: str, stream: str, *settings: str) -> None:
        self._arguments = ("-m", "tests.support.replication.victim", folder, stream, *settings, "lives=1")
        self.pid = 0  # pid of the running replicator; 0 while none runs

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._nursery = await asyncio.create_subprocess_exec(sys.executable, *self._arguments, stdin=pipe, stdout=pipe)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
        assert self._nursery.stdin is not None
        self._nursery.stdin.close()
        await self._nursery.wait()

    async def start(self) -> None:
        """Start a replicator process. On return it runs, but may not replicate yet."""
        assert self._nursery.stdin is not None and self.pid == 0
        self._nursery.stdin.write(b"go\n")
        self.pid = await self._hear("running")

    async def end(self, number: signal.Signals) -> None:
        """End the process by a signal. Fails if it ends for another reason."""
        pid, self.pid = self.pid, 0
        os.kill(pid, number)
        assert await self._hear("ended") == (0 if number is signal.SIGTERM else -number)

    async def _hear(self, word: str) -> int:
        assert self._nursery.stdout is not None
        async with asyncio.timeout(PATIENCE):
            heard = (await self._nursery.stdout.readline()).decode().split()
        assert heard[:1] == [word], heard
        return int(heard[1])
