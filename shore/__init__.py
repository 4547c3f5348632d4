"""PySpark: the source that reads thousands of logs, the Delta tables, the jobs that keep them, and reading them back.

In: a site's logs. Out: Delta tables, and the customers' feeds. Imports ``fairlead``'s shared parts and ``topologies``,
nothing else.
"""
