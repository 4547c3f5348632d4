"""From an MQTT message to the log that it belongs to.

In: deliveries of ``edge.mqtt``. Out: records for ``edge.logwriter``, dead letters, and an acknowledgement for each
message. Open ``router`` first. ``classifier`` says what a message is; ``dead_letters`` keeps what cannot be used, and
``replay`` publishes it again.
"""
