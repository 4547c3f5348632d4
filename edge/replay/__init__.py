"""Dead letters given to the bridge again, after the cause is gone: ``fairlead bridge replay``.

In: the site's dead-letter log and what was replayed before (``letters``). Out: a plan (``choose``, pure), and its
messages published to the site's MQTT broker (``publish``), each remembered in the topic ``fairlead.replays`` of the
site's Kafka once the broker has it. The letters stay in their log as they are.

What was replayed is remembered in a topic of its own: only the bridge appends to the dead-letter log, and whoever
replays from another machine must see it too.
"""
