"""Fleets, voyages, sensors, and links with weather: everything that in life would be steel, sea and cold air.

In: a scenario and a seed. Out: MQTT messages at the site where each box is, in simulated time, and the truth to compare
the logs with.

From the inside out: ``reefer``, ``climate`` and ``routes`` are the physics; ``scenario`` and ``faults`` are what a file
says, ``plan`` and ``mishaps`` what happens, ``linkweather`` what links are like meanwhile; ``voyage`` unfolds it into
``steps`` without any I/O; ``player`` publishes the steps; ``links`` are the proxies under the replicators that have
that weather; ``truth`` says what must be found. ``scale`` adds up what a fleet would need, without publishing anything.
May import every folder but ``fairlead.cli`` and ``fairlead.commands``.
"""
