"""Detection ashore: the alerts that shore finds in the logs of containers, wherever their boxes are.

In: readings of each log, in the order of the log. Out: states of alerts, rows of ``alerts_ashore``. ``rules`` judge a
reading, given what is remembered of its container; ``machine`` turns the judgements into alerts; both are pure.
``processor`` runs them in Spark's ``transformWithState``. Kinds, severities and times mean the same as in detection on
board (docs/alerts.md).
"""
