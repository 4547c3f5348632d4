"""Fleets, voyages, sensors, and links with weather: everything that in life would be steel, sea and cold air.

In: a scenario and a seed. Out: MQTT messages at the site where each box is, in simulated time, and the truth to compare
the logs with. May import every folder but ``fairlead.cli`` and ``fairlead.commands``.
"""
