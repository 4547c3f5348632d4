"""The session with the site's MQTT broker: persistent, QoS 1, acknowledged by hand.

In: the broker's address and a password. Out: messages in order of receipt, each with an ack that acknowledges it.
Open ``session`` first.
"""
