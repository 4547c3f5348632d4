"""Kafka's formats: record batches, records, compression, and the bodies of requests; pure.

In: bytes or values. Out: values or bytes. Open ``batch`` first, then ``record``.
"""
