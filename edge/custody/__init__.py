"""Custody: who may append to a container's log.

In: equipment events, orders, claims, ledger entries, and what this site's logs hold. Out: markers, ledger entries and
strays. Open ``protocol.py`` first: it decides everything and does no I/O. ``term_writer.py`` carries its actions
out, ``drain.py`` those about strays. ``manager.py`` puts the parts together.
"""
