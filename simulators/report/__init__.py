"""The report of a voyage: whether logs, tables and customers have what was published.

In: the simulator's truth, the sites' logs, the Delta tables, the replicators' counters. Out: a ``Report``, as a
table in the terminal, as JSON and as one HTML page. Open ``assemble`` first.
"""
