"""Alerts that a site raises itself: on ships about containers (overboard, power lost), everywhere about the site.

In: readings of the boxes aboard and the ship's own positions, in order of arrival. Out: alerts, appended to the site's
``alerts`` log. Open ``engine`` first: it gives every reading to the rules in ``rules``. ``thresholds`` come from
``defaults.yaml`` and a file of the user's. ``service`` runs the engine in the bridge, ``warm_start`` refills it after a
restart, and ``site_alerts`` raises alerts about the site. The engine and its rules are pure; durations are device time.
"""
