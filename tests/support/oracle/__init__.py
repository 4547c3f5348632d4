"""Derived tables a second time, by DuckDB and delta-rs on one machine: what the tables that Spark makes must equal.

``shore`` once made its tables this way. Each function takes the folder of the tables and gives one table whole.
"""
