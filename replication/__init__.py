"""Copy logs from site to site: fetch, append at the same offset, follow the links' policy, close gaps, compare sites.

In: logs of upstream sites over the topology's links. Out: the same records at the same offsets in this site's Kafka.
Open ``replicator`` first. ``plan`` decides which log is followed over which link, ``link`` fetches, ``batch`` turns
fetched bytes into batches that may be appended, ``target`` appends and checks. ``custody`` follows the site's own
ledgers and rebuilds copies after a seizure, ``overrides`` has the operators' orders, ``catalog`` has the fixed facts
about each log. Imports ``fairlead``'s shared parts and ``topologies``, nothing else.
"""
