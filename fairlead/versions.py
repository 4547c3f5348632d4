"""Which versions run here: Fairlead's own, from its one source, the installed metadata; and of what it runs on."""

from __future__ import annotations

import platform
from importlib import metadata

from fairlead.jars import jar_set


def fairlead_version() -> str:
    """The version of the installed Fairlead, as ``pyproject.toml`` had it when it was installed."""
    return metadata.version("fairlead")


def versions() -> dict[str, str]:
    """Fairlead's version and those of what it runs on, by name. Imports none of it."""
    return {
        "fairlead": fairlead_version(),
        "python": platform.python_version(),
        "kafka": jar_set("kafka").revision_of("kafka-clients"),
        "spark": metadata.version("pyspark"),
        "delta": jar_set("delta").revision_of("delta-storage"),
    }
