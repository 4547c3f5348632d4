"""Compares two sites' copies of every shared log: quick by stored batches, full by the records a consumer sees.

In: two endpoints, a topology's streams. Out: an ``Audit``. Only the offsets that both sites have are compared, because
retention is each site's own. ``compare_records`` (full) reads every record of both sites through confluent-kafka, so it
cannot share a bug with the replicator; ``compare`` (quick) compares offsets and CRCs of the stored batches, and reads
only those offsets record by record where the batches are not the same.

    run ── ranges      which logs, over which offsets (confluent-kafka)
        ├─ stored      quick: (offset, CRC) of many logs per Fetch
        └─ records ─┬ reader      full: what a consumer sees, and where nothing is left to read
                    └ sidebyside  what compaction explains

Everything streams: memory depends on how many logs are compared at a time, never on how long they are. ``marks`` is
what an interrupted audit goes on from.
"""

from __future__ import annotations

from replication.audit.marks import Marks, mark_file
from replication.audit.result import Audit, AuditDifference, OnProgress
from replication.audit.run import compare, compare_records

__all__ = ["Audit", "AuditDifference", "Marks", "OnProgress", "compare", "compare_records", "mark_file"]
