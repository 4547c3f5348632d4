"""The jobs of shore: each keeps one or more tables from the logs or from other tables, by one streaming query.

In: the source ``fairlead`` and tables. Out: tables, and the customers' feeds. A job's state is its checkpoint and its
tables; they belong together. ``shore.jobs.runner`` runs them.
"""
