"""Compute derived tables a second time, by DuckDB and delta-rs on one machine: Spark's tables must equal them.

``shore`` once made its tables this way. Each function takes the folder of the tables and returns one whole table.
``entitlement`` computes in the same way what is due to customers' feeds.
"""
