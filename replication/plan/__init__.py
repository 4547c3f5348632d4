"""Which log is followed over which link, and the topics at the target.

In: the topology, the ledgers of custody, operators' overrides, what sources have. Out: assignments for the links;
topics created and kept as they must be. Open ``planner`` first, the loop; ``assignment`` decides (pure).
"""
