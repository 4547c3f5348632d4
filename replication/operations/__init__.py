"""What an operator does about links and logs that stopped: each operation a plan that is shown, then carried out.

In: a wish, and what is so now. Out: orders for replicators, and steps at the clusters. Open ``links`` first (pause,
promote, failover, reverse); ``resolve`` is the way out of each state of a log.
"""
