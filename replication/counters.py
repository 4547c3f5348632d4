"""What one link has moved since its replicator started."""

from __future__ import annotations

from dataclasses import dataclass

from replication.content import Item


@dataclass(slots=True)
class Counters:
    """Shared by all lanes of a link."""

    records: int = 0
    batches: int = 0
    bytes: int = 0  # of batches appended to the target
    fetched_bytes: int = 0  # over the link, with what another link had brought already

    def add(self, item: Item) -> None:
        """A batch has been appended."""
        self.records += item.records
        self.batches += 1
        self.bytes += len(item.data)

    def as_json(self) -> dict[str, int]:
        return {
            "records": self.records,
            "batches": self.batches,
            "bytes": self.bytes,
            "fetched_bytes": self.fetched_bytes,
        }
