"""The Kafka client: whole record batches and many logs in one request, which ordinary clients hide.

In: an endpoint, and bytes to append. Out: stored batches as they are, offsets, and the outcome of every append under
the append ``convention``. Open ``client.cluster`` first. ``protocol`` is pure: batches, records, codecs of requests.
``client`` is asyncio, runs under uvloop as well, and belongs to one event loop. ``admin`` and ``credentials`` go
through confluent-kafka.
"""
