"""Follow custody at the target: the holder of each log, logs started from the ledger, copies rebuilt after a seizure.

In: the site's own logs of custody, events and orders, and copies that a seizure cut off. Out: logs at the target that
continue where the ledger says. Open ``ledger`` first; ``rebuild`` deletes copies that a seizure cut off, so that they
are copied anew; ``bootstrap`` starts a log that no source has from its start.
"""
