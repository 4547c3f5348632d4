"""Read custody: who may append to a container's log, now and earlier.

In: the ledgers ``custody.<site>``, read from Kafka. Out: the holder of each log and its term (``view``), all holders in
order (``history``), terms that a seizure cut off (``superseded``). Open ``view`` first; ``ledger`` reads.
``edge.custody`` writes the ledgers.
"""
