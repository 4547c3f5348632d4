"""Making tables what they must be: rows that the logs have and a table does not, derived tables, lost checkpoints.

In: the tables and checkpoints of one topology, and the Kafka of the site where shore runs. Out: commits that add what
is missing and replace what is wrong, never a row twice: everything is found by comparing first (``shore.verify``), so
whatever is broken off is done again from where it stands. Shore must not run meanwhile (``shore.delta.lease``).
"""
