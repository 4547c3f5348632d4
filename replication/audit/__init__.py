"""Compare two sites' copies of every shared log: quick by stored batches, full by the records that a consumer sees.

In: two endpoints, a topology's streams. Out: an ``Audit``. Only the offsets that both sites have are compared, because
each site has its own retention. ``compare_records`` (full) reads every record of both sites through confluent-kafka, so
it cannot share a bug with the replicator. ``compare`` (quick) compares offsets and CRCs of the stored batches. It reads
single records only where the batches differ.

    run ── ranges       finds the logs and offsets to compare (confluent-kafka)
        ├─ stored       quick: (offset, CRC) of many logs per Fetch
        └─ records ─┬ reader       full: records as a consumer sees them, and ranges without records
                    └ side_by_side  differences that compaction explains

Memory depends on the number of logs compared at a time, never on their length, because everything is streamed.
``marks`` lets an interrupted audit continue.
"""

from __future__ import annotations

from replication.audit.marks import Marks, mark_file
from replication.audit.result import Audit, AuditDifference, OnProgress
from replication.audit.run import compare, compare_records

__all__ = ["Audit", "AuditDifference", "Marks", "OnProgress", "compare", "compare_records", "mark_file"]
