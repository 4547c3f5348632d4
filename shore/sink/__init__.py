"""The sink ``fairlead``: rows of Spark appended to logs, exactly once per micro-batch.

In: rows with ``topic``, ``key``, ``value``, ``headers``, ``timestamp``. Out: records of logs that shore may write to.
``options`` describes the options, ``writer`` states the contract, ``resume`` is the logic of a repeated batch.
"""
