"""Local sites whose brokers run another release of Kafka than the one that Fairlead ships. For tests of versions.

The releases are the sets of ``kafka_releases.lock``, which ``tools/lock_jars.py`` renews.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from fairlead.jars import ensure_jars, find_java
from fairlead.jars.lock import JarSet, parse_lock
from fairlead.local import mosquitto
from fairlead.local.sites import LocalSites, Progress, Toolbox

FEATURES: Final[Mapping[str, Mapping[str, int]]] = {"3.9": {"metadata.version": 21}}
"""What ``kafka-storage format`` of each release finalises (metadata.version 21 is 3.9-IV0)."""


@cache
def release(name: str) -> JarSet:
    """Return the jars of a release, ``3.9``."""
    return parse_lock(Path(__file__).with_name("kafka_releases.lock").read_text(encoding="utf-8"))[
        f"kafka-{name.replace('.', '')}"
    ]


class ReleaseSites(LocalSites):
    """``LocalSites`` whose brokers run the release ``name`` of Kafka."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._name = name

    def toolbox(self, tell: Progress) -> Toolbox:
        wanted = release(self._name)
        jars = ensure_jars(wanted, on_progress=lambda text: tell("", text))
        return Toolbox(
            find_java(),
            jars,
            (),  # without an archive of classes, as few brokers start
            wanted.revision_of("kafka-clients"),
            mosquitto.find_mosquitto(),
            FEATURES[self._name],
        )
