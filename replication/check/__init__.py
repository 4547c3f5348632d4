"""Checks a cluster that Fairlead does not run itself before it is linked.

In: an address and a user. Out: findings, each with what to do. Open ``ask`` first, which asks the cluster; ``rules``
decides (pure).
"""
