"""Custody: who may append to a container's log.

In: equipment events, orders, claims, ledger entries, and the ends of this site's logs. Out: markers, ledger entries and
strays. Open ``protocol.py`` first: it makes every decision and does no I/O. ``term_writer.py`` carries out its actions,
``drain.py`` those about strays. ``manager.py`` creates the parts and connects them.
"""
