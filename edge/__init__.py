"""A site's way in: from its MQTT broker to its Kafka logs, with alerts and custody on the way.

In: messages of the site's MQTT broker, AIS, and the ledgers of custody as they are replicated here. Out: records
appended to this site's Kafka under the append convention (``fairlead.kafka.convention``), custody entries, strays, dead
letters, alerts. Open ``bridge`` first. The data's way is ``mqtt``, ``ingest``, ``alerts``, then ``logwriter`` or
``strays``; ``custody`` decides which of the two. Imports ``fairlead``'s shared parts and ``topologies``, nothing else.
"""
