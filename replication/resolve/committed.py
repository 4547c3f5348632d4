"""How far a site's consumer groups have read a topic: looked up before Kafka forgets it with the topic, and committed
again afterwards, with each consumer's own metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from fairlead.errors import FairleadError
from fairlead.wire.types import TopicPartition
from replication.group_client import GroupClient
from replication.groups import Commit
from replication.resolve.facts import Committed

AT_ONCE: Final = 8  # groups asked for at the same time


async def groups_of(client: GroupClient, topic: str, partitions: Collection[int]) -> tuple[Committed, ...]:
    """What the consumer groups of a site have committed in a topic.

    Raises:
        FairleadError: the site does not answer, or the user may not see its groups.
    """
    limit = asyncio.Semaphore(AT_ONCE)

    async def ask(group: str) -> list[Committed]:
        async with limit:
            found = await client.offsets(group)
        return [
            Committed(group, tp.partition, commit.offset, commit.metadata)
            for tp, commit in found.items()
            if tp.topic == topic and tp.partition in partitions
        ]

    names = (await client.groups()).active
    return tuple(sorted(each for some in await asyncio.gather(*map(ask, names)) for each in some))


async def restore_groups(client: GroupClient, topic: str, committed: Collection[Committed]) -> list[str]:
    """Commit these offsets again; what is wrong with the groups for which that was refused."""
    refused = []
    for group in sorted({each.group for each in committed}):
        commits = {
            TopicPartition(topic, each.partition): Commit(each.offset, each.metadata)
            for each in committed
            if each.group == group
        }
        try:
            errors = {each.name for each in (await client.commit(group, commits)).values()}
        except FairleadError as error:
            errors = {error.what}
        if errors:
            refused.append(f"{group}: {', '.join(sorted(errors))}")
    return refused
