"""Operators' commands for links and for logs that stopped. Each makes a plan, shows it, then carries it out.

In: a request and the current state of both ends. Out: orders for replicators, and steps at the clusters. Open ``links``
first (pause, promote, failover, reverse); ``resolve`` resolves each state of a log.
"""
