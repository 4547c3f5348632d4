"""``fairlead custody grant`` and ``seize``: write an order for a site's bridge, and wait for its answer.

In: the custody ledgers in the sites' Kafkas. Out: a ``CustodyOrder`` in the topic ``fairlead.custody`` of the acting
site. Its bridge answers in its own ledger. Open ``plan`` first: it asks the sites, builds the plan, and refuses
whatever the ledger already rules out, before anything is written. ``execute`` carries the plan out.
"""
