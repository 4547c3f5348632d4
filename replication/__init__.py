"""From site to site: fetch, append at the same offset, links and their policy, gaps, audit.

In: logs of upstream sites over the topology's links. Out: the same records at the same offsets in this site's Kafka.
Imports ``fairlead``'s shared parts and ``topologies``, nothing else.
"""
