"""Find Java, and keep the Kafka and Delta jars of ``jars.lock`` in the user's cache.

In: the lock file. Out: ``ensure_jars("kafka")`` and ``ensure_jars("delta")``, verified files that are downloaded once.
From Fairlead, imports only errors and the names of folders.
"""

from __future__ import annotations

from fairlead.jars.java import find_java
from fairlead.jars.lock import jar_set
from fairlead.jars.store import ensure_jars, ensure_packages

__all__ = ["ensure_jars", "ensure_packages", "find_java", "jar_set"]
