"""The sink to Kafka: append rows of Spark to customers' feeds, each exactly once.

In: rows of ``shore.feeds.entitlement.DUE``. Out: records of logs ``feeds.<customer>``, and rows of table ``feeds`` and
of customers' own tables. Open ``exactly_once`` first: it states the protocol and runs on the driver. ``feed_logs``
does the work with Kafka, mostly in tasks.
"""
