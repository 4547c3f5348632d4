"""Alerts that cannot wait for shore: overboard, power lost, temperature out of band.

In: readings of the boxes aboard and the ship's own positions, in order of arrival. Out: alerts, appended to the site's
``alerts`` log. Open ``engine`` first: it gives every reading to the ``rules``, one module each. ``thresholds`` come
from ``defaults.yaml`` and a file of the user's. ``service`` runs the engine in the bridge, ``warm_start`` fills it
again after a restart. The engine and its rules are pure; durations are device time.
"""
