"""Simulated ships, containers, weather and trouble, published to real sites.

In: a scenario and a seed. Out: MQTT messages at the site where each box is, in simulated time, and the truth to compare
the logs with. Open ``voyage`` first. ``fleet`` plans which box is where and when, ``physics`` computes temperatures and
sensors, ``steps`` defines the steps of a voyage, ``voyage`` publishes them, ``network`` delays and cuts the
replicators' links, ``report`` compares what arrived with the truth, ``scale`` sizes a fleet without publishing. May
import every package but ``fairlead.cli``.
"""
