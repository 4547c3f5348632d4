"""Append batches to the target exactly at the log's end, and check every outcome.

In: prepared batches. Out: the same bytes at the same offsets in the target's Kafka, or a log stopped in a named state.
Open ``appender`` first; it also reconciles appends whose outcome is unknown. ``mirror`` is the state of one log;
``gaps`` finds and deletes the fillers that positioned a log; ``log_reader`` reads stored batches and log ends.
"""
