"""Alerts that a site raises itself: about the containers at the site (overboard, power lost), and about the site.

In: readings of the boxes at the site and, on a ship, its own positions, in order of arrival. Out: alerts, appended to
the site's ``alerts`` log. Open ``engine`` first: it gives every reading to the rules in ``rules``. ``thresholds`` come
from ``defaults.yaml`` and a file of the user's. ``service`` runs the engine in the bridge, ``warm_start`` refills it
after a restart, and ``site_alerts`` raises alerts about the site. The engine and its rules are pure; durations are
device time.
"""
