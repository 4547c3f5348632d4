"""One writer per log: keeps the order of arrival, drops repeats, appends to Kafka.

In: records, each with the ``PendingAck`` of its message. Out: appended batches, and acknowledged messages. Open
``writer`` first: a queue with one batch in flight. ``container`` has the writer of a container's log; ``dedup`` is
pure. ``edge.writer_registry`` holds all writers of the site.
"""
