"""Routes each MQTT message to the log that it belongs to.

In: deliveries of ``edge.mqtt``. Out: records for ``edge.logwriter``, dead letters, and an acknowledgement for each
message. Open ``router`` first. ``classifier`` decodes and checks messages; ``dead_letters`` keeps those that cannot be
used, and ``replay`` publishes them again.
"""
