"""``fairlead custody grant`` and ``seize``: an order that the acting site's bridge carries out.

In: the ledgers of custody as the sites have them. Out: a plan (``plan``: pure, but for asking), carried out by
``execute``: a ``CustodyOrder`` in the topic ``fairlead.custody`` of the site that is to act, and its bridge's answer in
its ledger. What the ledger already rules out is refused before anything is written.
"""
