"""Fleets, voyages, sensors, and links with weather: they stand in for ships, containers and the sea.

In: a scenario and a seed. Out: MQTT messages at the site where each box is, in simulated time, and the truth to compare
the logs with. Open ``voyage`` first. ``fleet`` says which box is where and when, ``physics`` how warm it is there,
``steps`` what a voyage consists of, ``voyage`` publishes it, ``network`` delays and cuts links under the replicators,
``report`` compares what arrived with the truth, ``scale`` adds up what a fleet needs without publishing anything. May
import every package but ``fairlead.cli``.
"""
