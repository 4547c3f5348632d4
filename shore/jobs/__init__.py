"""The jobs of shore. Each job is one streaming query that keeps one or more tables up to date.

In: the logs, by the source ``fairlead``, and tables. Out: tables, and the customers' feeds. A job's state is its
checkpoint and its tables, and neither is valid without the other. ``shore.jobs.runner`` runs the jobs.
"""
