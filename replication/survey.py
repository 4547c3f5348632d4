"""Asks the sources over which logs are not followed whether they have more, and gives what was unavailable another try.

Which sources have to be asked is told by ``plan.to_survey``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from fairlead.errors import FairleadError
from fairlead.wire.types import TopicPartition
from replication.plan import to_survey
from replication.pull import Pull
from replication.states import LogState
from replication.writer import Writer

PAUSE: Final = (2.0, 30.0)  # seconds between two surveys
PAUSE_PER_LOG: Final = 0.002
FORGIVE: Final = 5.0


class Survey:
    """Makes ``ends`` of the links known where nothing is fetched.

    Args:
        followed: The links over which each log is followed now.
        carried: The logs that a link could be followed over.
        holder: The site that appends to a topic, as far as it is known.
        on_change: Called when a source has more than the target, or a log may be tried again.
    """

    def __init__(
        self,
        pulls: Sequence[Pull],
        *,
        followed: Callable[[], Mapping[TopicPartition, Collection[str]]],
        carried: Callable[[Pull], Collection[TopicPartition]],
        holder: Callable[[str], str | None],
        on_change: Callable[[], None],
    ) -> None:
        self._pulls = pulls
        self._followed = followed
        self._carried = carried
        self._holder = holder
        self._on_change = on_change

    async def run(self, writer: Writer) -> None:
        """Survey until cancelled."""
        forgiven = time.monotonic()
        while True:
            asked = await self.look(writer)
            if time.monotonic() - forgiven > FORGIVE:
                forgiven = time.monotonic()
                self.forgive(writer)
            await asyncio.sleep(min(max(asked * PAUSE_PER_LOG, PAUSE[0]), PAUSE[1]))

    async def look(self, writer: Writer) -> int:
        """Ask once; how many ends were asked for."""
        pulls = {pull.name: pull for pull in self._pulls if pull.is_up}
        if len(pulls) < 2:
            return 0
        carried = {name: dict.fromkeys(self._carried(pull), pull.link.from_) for name, pull in pulls.items()}
        asked = to_survey(self._followed(), carried, lambda tp: self._holder(tp.topic))
        for name, logs in asked.items():
            await _ask(pulls[name], logs)
        if any(
            pulls[name].ends.get(tp, 0) > writer.replicas[tp].end
            for name, logs in asked.items()
            for tp in logs
            if tp in writer.replicas
        ):
            self._on_change()
        return sum(len(logs) for logs in asked.values())

    def forgive(self, writer: Writer) -> None:
        """Try again what was only unavailable, at the sources and here."""
        for pull in self._pulls:
            pull.forgive()
        for replica in writer.replicas.values():
            if replica.trouble is not None and replica.trouble.state is LogState.UNAVAILABLE:
                replica.trouble = None
                self._on_change()


async def _ask(pull: Pull, logs: Collection[TopicPartition]) -> None:
    if pull.cluster is None:
        return
    try:
        ends = await pull.cluster.end_offsets(logs)
    except FairleadError:
        return  # the link's own tasks notice that the source is away
    pull.ends |= {tp: end for tp, end in ends.items() if isinstance(end, int)}
