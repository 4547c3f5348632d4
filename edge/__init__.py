"""A site's way in: MQTT to logs, on-board detection, the ship's log, and custody of what is aboard.

In: messages from the site's MQTT broker and the custody ledger as replicated here. Out: records appended to this
site's Kafka under the append convention (``fairlead.wire``), custody entries, strays, dead letters, alerts. Imports
``fairlead``'s shared parts and ``topologies``, nothing else.
"""
