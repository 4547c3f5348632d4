"""A cluster's client quotas of users: read and set, by Fairlead's own requests. Blocking; not for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final, TypeVar

from acl.kafka import NotAuthorised
from acl.quotas import SetQuota, together
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError
from fairlead.wire.cluster import Cluster
from fairlead.wire.coding import Question
from fairlead.wire.errors import broker_error
from fairlead.wire.quotas import alter_request, describe_request

T = TypeVar("T")
_CLIENT: Final = "fairlead-access"
_TIMEOUT: Final = 10.0  # seconds for a request
_REFUSED: Final = "CLUSTER_AUTHORIZATION_FAILED"


def read_quotas(endpoint: KafkaEndpoint) -> dict[str, dict[str, float]]:
    """The quotas of users.

    Raises:
        NotAuthorised: the user may not read them. WireError: the cluster does not answer.
    """
    code, found = _ask(endpoint, describe_request())
    _check(endpoint, code, "read client quotas", "DESCRIBE_CONFIGS")
    return found


def set_quotas(endpoint: KafkaEndpoint, changes: Collection[SetQuota]) -> None:
    """Make these changes.

    Raises:
        NotAuthorised: the user may not. WireError: the cluster does not answer. FairleadError: it refused one.
    """
    for code in _ask(endpoint, alter_request(together(changes))).values():
        _check(endpoint, code, "set client quotas", "ALTER_CONFIGS")


def _check(endpoint: KafkaEndpoint, code: int, doing: str, right: str) -> None:
    if not code:
        return
    name, fields = broker_error(code).name, {"site": endpoint.site, "user": endpoint.user}
    if name == _REFUSED:
        raise NotAuthorised(
            f"user {endpoint.user!r} may not {doing} at site {endpoint.site}",
            hint=f"it needs {right} on the cluster",
            **fields,
        )
    raise FairleadError(f"site {endpoint.site} did not {doing}: {name}", hint="see the broker's log", **fields)


def _ask(endpoint: KafkaEndpoint, question: Question[T]) -> T:
    async def ask() -> T:
        async with await Cluster.open(endpoint, client_id=_CLIENT, request_timeout=_TIMEOUT) as cluster:
            connection = await cluster.pool.any("control")
            return await connection.call(question)

    return asyncio.run(ask())
