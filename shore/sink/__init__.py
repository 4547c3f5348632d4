"""The sink ``fairlead``: rows of Spark appended to logs, exactly once per micro-batch.

In: rows with ``topic``, ``key``, ``value``, ``headers``, ``timestamp``. Out: records of logs that shore may write to.
``options`` describes options and columns, ``writer`` states the contract, ``append`` decides what of a repeated
batch is missing. ``shore.datasource`` is what Spark calls.
"""
