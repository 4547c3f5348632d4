"""A voyage: its steps in simulated time, and the player that publishes them to real sites.

In: a plan. Out: MQTT messages when their time has come, and the truth of what was published. Open ``voyage`` first (the
steps, without I/O); ``player`` publishes them, ``run`` does so against real sites, ``recording`` keeps them in a file.
"""
