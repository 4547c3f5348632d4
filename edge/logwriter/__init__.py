"""One writer for each log: keeps its order, drops repeats, appends.

In: records, each with the ``PendingAck`` of its message. Out: appended batches, and acknowledged messages. Open
``writer`` first, a queue with one batch in flight; ``container`` is the writer of a container's log. ``dedup`` is pure.
``edge.writer_registry`` has all writers of the site.
"""
