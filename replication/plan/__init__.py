"""Plan which log is followed over which link, and maintain the topics at the target.

In: the topology, the ledgers of custody, operators' overrides, the sources' logs. Out: assignments for the links;
topics with the right settings. Open ``planner`` first, the loop; ``assignment`` decides (pure).
"""
