"""Custody by hand: a log is granted or seized by an order that the acting site's bridge carries out.

In: the ledgers of custody as the sites have them. Out: a plan (``build``), told to a person (``explain``) or carried
out (``execute``): a ``CustodyOrder`` in the topic ``fairlead.custody`` of the site that is to act, and its bridge's
answer in its ledger. What the ledger already rules out is refused before anything is written.
"""
