"""Open connections to the sites' Kafka clusters, one per site, for whoever watches or counts during a voyage."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from fairlead.endpoint import KafkaEndpoint
from fairlead.wire.cluster import Cluster


class Clusters:
    """Clusters by site name, opened on first use, closed together."""

    def __init__(self, endpoint: Callable[[str], KafkaEndpoint], *, client_id: str = "fairlead-voyage") -> None:
        self._endpoint = endpoint
        self._client_id = client_id
        self._open: dict[str, Cluster] = {}

    async def at(self, site: str) -> Cluster:
        """The site's cluster. Raises what ``Cluster.open`` raises."""
        if site not in self._open:
            self._open[site] = await Cluster.open(self._endpoint(site), client_id=self._client_id)
        return self._open[site]

    async def close(self) -> None:
        for cluster in self._open.values():
            await cluster.close()
        self._open.clear()

    async def __aenter__(self) -> Clusters:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
