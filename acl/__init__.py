"""Manage access to streams: compile access expressions to Kafka rules, plan, apply, explain.

In: a topology's permissions and the rules that a cluster has now. Out: a plan, and Kafka ACLs. Open ``compile`` first
(from a topology to rules), then ``plan`` (from rules to steps), ``apply`` (several sites at once) and ``kafka`` (a
site's rules). Imports ``fairlead``'s shared parts and ``topologies``, nothing else.
"""
