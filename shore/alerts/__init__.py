"""Detection ashore: what shore finds in the logs of containers, wherever their boxes are.

In: readings of one log after the other, in the order of the log. Out: states of alerts, rows of ``alerts_ashore``.
``rules`` say what a reading shows, given what is remembered of its container; ``machine`` makes alerts of it; these are
pure. ``processor`` runs them in Spark's ``transformWithState``. The meaning of kinds, severities and times is that
of detection on board (docs/alerts.md).
"""
