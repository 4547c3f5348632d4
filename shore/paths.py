"""The locations of one topology's tables and checkpoints. Pure.

``base`` is the topology's state folder, or the storage URL that ``shore.tables`` names. Tables are in
``<base>/delta/<table>``, checkpoints in ``<base>/checkpoints/<job>``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

CUSTOMERS: Final = "customers/"
"""The prefix of names of customers' own tables; ``TablePaths.customer`` says where these are."""


@dataclass(frozen=True, slots=True)
class TablePaths:
    """Locations as text: a path, or a URL that both Spark and delta-rs understand."""

    base: str

    @classmethod
    def of(cls, folder: Path, storage: str | None = None) -> TablePaths:
        return cls(storage.rstrip("/") if storage else str(folder.absolute()))

    @property
    def is_local(self) -> bool:
        return "://" not in self.base

    @property
    def tables(self) -> str:
        return f"{self.base}/delta"

    def table(self, name: str) -> str:
        """Return the location of a table, or of a customer's own table by the name ``customers/<customer>``."""
        if name.startswith(CUSTOMERS):
            return self.customer(name.removeprefix(CUSTOMERS))
        return f"{self.base}/delta/{name}"

    def customer(self, name: str) -> str:
        """Return the location of a customer's own table, in a folder that has nothing else."""
        return f"{self.base}/{CUSTOMERS}{name}/feed"

    @property
    def checkpoints(self) -> str:
        return f"{self.base}/checkpoints"

    def checkpoint(self, job: str) -> str:
        return f"{self.checkpoints}/{job}"
