"""The target's side: append at exactly the log's end, and check every outcome.

In: prepared batches. Out: the same bytes at the same offsets in the target's Kafka, or a log stopped in a named state.
Open ``appender`` first; it also finds out what became of appends whose outcome is unknown. ``mirror`` is the state of
one log; ``gaps`` finds and deletes fillers that positioned a log; ``log_reader`` reads what is stored.
"""
