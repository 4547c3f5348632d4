"""An asyncio Kafka client that fetches and appends whole record batches, with many logs in one request.

Ordinary clients hide batches. In: an endpoint, and bytes to append. Out: stored batches as they are, offsets, and the
outcome of every append under the append ``convention``. Open ``client.cluster`` first. ``protocol`` is pure: batches,
records, codecs of requests. ``client`` is asyncio, also runs under uvloop, and belongs to one event loop. ``admin`` and
``credentials`` go through confluent-kafka.
"""
