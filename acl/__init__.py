"""Who may do what with which stream: access expressions, the rules they compile to, plan, apply, explain.

In: a topology's permissions and the rules a cluster has now. Out: a plan, and Kafka ACLs. Open ``compile`` first (from
a topology to rules), then ``plan`` (from rules to steps), ``apply`` and ``store`` (a site's rules, and several sites at
once). Imports ``fairlead``'s shared parts and ``topologies``, nothing else.
"""
