"""Delta tables: reading them on the driver or by Spark, writing them by Spark, and their errors.

In: locations of tables (``shore.paths``) and their definitions (``shore.tables``). Out: Arrow datasets (``datasets``),
DataFrames (``lake``) and commits (``commit``). ``lease`` allows one process to write, ``table_errors`` names a table
that is missing or damaged, ``evolution`` holds the rules by which schemas change.
"""
