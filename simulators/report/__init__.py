"""The report of a voyage: whether logs, tables and customers have what was published.

In: the simulator's truth, the sites' logs, the Delta tables, the replicators' counters. Out: a ``Report``, as a
table in the terminal and as JSON; the board makes a page of it. Open ``assemble`` first.
"""
