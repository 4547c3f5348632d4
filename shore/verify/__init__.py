"""Prove that log tables equal the logs, and derived tables what their inputs give.

In: a Spark session, the tables and checkpoints of one topology, and the Kafka of the site where shore runs. Nothing is
written, and shore may run meanwhile. Out: ``Verification``, with one ``TableCheck`` per table.
``shore.verify.catalogue`` lists the tables that can be verified.
"""

from __future__ import annotations

from shore.verify.compare import Difference, TableCheck, Verification
from shore.verify.run import verify

__all__ = ["Difference", "TableCheck", "Verification", "verify"]
