"""Versions of Fairlead, from the installed metadata, and of the software that it runs on."""

from __future__ import annotations

import platform
from importlib import metadata


def fairlead_version() -> str:
    """Return the version of the installed Fairlead: the one in ``pyproject.toml`` at the time of installation."""
    return metadata.version("fairlead")


def versions() -> dict[str, str]:
    """Return the versions of Fairlead and of the software that it runs on, by name. Imports none of it."""
    from fairlead.jars import jar_set  # imported late: 2 MB, which replicators do not need

    return {
        "fairlead": fairlead_version(),
        "python": platform.python_version(),
        "kafka": jar_set("kafka").revision_of("kafka-clients"),
        "spark": metadata.version("pyspark"),
        "delta": jar_set("delta").revision_of("delta-storage"),
    }
