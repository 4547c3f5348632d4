"""Check a cluster that Fairlead does not run itself before linking it.

In: an address and a user. Out: findings, each with the change that fixes it. Open ``ask`` first: it queries the
cluster. ``rules`` judges the answers (pure).
"""
