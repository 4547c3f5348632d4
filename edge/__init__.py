"""The bridge of a site: writes messages from its MQTT broker to its Kafka logs, raises alerts, and moves custody.

In: messages of the site's MQTT broker, AIS, and the custody ledgers that are replicated here. Out: records appended to
this site's Kafka under the append convention (``fairlead.kafka.convention``), custody entries, strays, dead letters,
alerts. Open ``bridge`` first. Data flows through ``mqtt``, ``ingest``, ``alerts``, then ``logwriter`` or ``strays``;
``custody`` decides which of the two. Imports only ``topologies`` and the shared parts of ``fairlead``.
"""
