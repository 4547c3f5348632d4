"""Copy committed offsets of consumer groups along with the logs.

In: the groups that a link selects, at its source. Out: the same offsets committed at the target. Open ``sync`` first;
``rules`` decides (pure), ``client`` reads and commits.
"""
