"""Operate a link: pause, resume, promote, failover, reverse, restore.

The operations have the same meaning as in Confluent's Cluster Linking. ``facts`` gathers the request and the current
state, ``plan`` builds a plan from them or refuses (pure; open it first), ``steps`` are the plan's steps. All access to
clusters and files goes through ``access``. ``report`` has the data of ``fairlead link list``.
"""
