"""Looking after the tables: fewer and better sorted files, deleting what no version needs, and how schemas may change.

In: the tables of one topology, by delta-rs; no Spark. Each verb is a plan (pure figures of what is there) and its
execution, which may run while shore does.
"""
