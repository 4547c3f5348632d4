"""What custody asks of copies: who holds each log, logs begun from the ledger, copies rebuilt after a seizure.

In: the site's own logs of custody, events and orders, and copies that a seizure cut off. Out: logs at the target that
continue where the ledger says. Open ``ledger`` first; ``rebuild`` deletes and copies anew what a seizure cut off;
``bootstrap`` begins a log that no source has from its beginning.
"""
