"""The Kafka wire: whole record batches and many logs per request, which ordinary clients hide (design, section 4).

In: an endpoint and bytes to append. Out: stored batches as they are, offsets, and the outcome of every append under the
append convention (design, section 5). Pure parts (``batch``, ``record``, ``codecs``, ``convention``, ``produce_codec``,
``fetch_codec``) do no I/O; ``connection``, ``cluster``, ``fetch_session``, ``appender`` and ``reader`` are asyncio, run
under uvloop as well, and belong to one event loop. Imports nothing of Fairlead but its errors, endpoint and headers.
"""
