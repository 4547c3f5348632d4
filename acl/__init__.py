"""Who may do what with which stream: access expressions, the rules they compile to, plan, apply, explain.

In: a topology's permissions and the rules a cluster has now. Out: a plan, and Kafka ACLs. Imports ``fairlead``'s
shared parts and ``topologies``, nothing else.
"""
