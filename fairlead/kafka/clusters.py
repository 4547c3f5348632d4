"""Open connections to the Kafka clusters of several sites, one cluster per site."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint


class Clusters:
    """Clusters by site name, opened at first use, closed together. Only one task at a time may open a site."""

    def __init__(
        self, endpoint: Callable[[str], KafkaEndpoint], *, client_id: str, request_timeout: float = 30.0
    ) -> None:
        """``endpoint`` returns a site's Kafka and user; ``request_timeout`` is in seconds."""
        self._endpoint = endpoint
        self._client_id = client_id
        self._request_timeout = request_timeout
        self._open: dict[str, Cluster] = {}

    async def at(self, site: str) -> Cluster:
        """Return the site's cluster. Raises what ``Cluster.open`` raises; the next call tries again."""
        if site not in self._open:
            self._open[site] = await Cluster.open(
                self._endpoint(site), client_id=self._client_id, request_timeout=self._request_timeout
            )
        return self._open[site]

    async def close(self) -> None:
        """Close all clusters; a later ``at`` opens them again."""
        for cluster in self._open.values():
            await cluster.close()
        self._open.clear()

    async def __aenter__(self) -> Clusters:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
