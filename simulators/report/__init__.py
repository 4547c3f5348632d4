"""The report of a voyage: what was published, what the logs, the tables and the customers have, and whether they agree.

In: the simulator's truth, the sites' logs, the Delta tables, the replicators' counters. Out: a ``Report``, as a
table in the terminal, as JSON and as one HTML page. Open ``assemble`` first.
"""
