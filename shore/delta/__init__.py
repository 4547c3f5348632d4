"""Delta tables without Spark: opening, reading, writing, and what to say about one that cannot be.

In: locations of tables (``shore.paths``) and their definitions (``shore.tables``). Out: Arrow datasets and commits,
each of which happens once (``write``). ``lease`` sees to it that one process writes, ``table_errors`` names a table
that is missing or damaged, ``evolution`` holds the rules by which schemas change.
"""
