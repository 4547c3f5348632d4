"""Proving that tables equal logs, and derived tables what follows from their inputs.

In: the tables and checkpoints of one topology and the Kafka of the site where shore runs; nothing is written, no Spark
is started, and shore may run meanwhile. Out: ``Verification``, one ``TableCheck`` a table. A table that others are to
be able to check has a line in ``shore.verify.catalogue``.
"""

from __future__ import annotations

from shore.verify.compare import Difference, TableCheck, Verification
from shore.verify.run import verify

__all__ = ["Difference", "TableCheck", "Verification", "verify"]
