"""Connections to a cluster, fetching and appending; asyncio, one event loop.

In: an endpoint with its login. Out: batches fetched from many logs at once, and the outcome of every append. Open
``cluster`` first; ``appender`` writes, ``fetch_session`` and ``reader`` read.
"""
