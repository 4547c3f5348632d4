"""Repair tables: add rows that the logs have and a table lacks, recompute derived tables, replace lost checkpoints.

In: the tables and checkpoints of one topology, and the Kafka of the site where shore runs. Out: commits that add what
is missing and replace what is wrong, never a row twice. Every repair compares first (``shore.verify``), so an
interrupted one continues when it runs again. Shore must not run meanwhile (``shore.delta.lease``).
"""
