"""Share one site's logs among several replicators (``fairlead replicate --group``).

In: the members of a Kafka group at the target. Out: which logs this member follows. Open ``rules`` first: it divides
the logs and has a member's whole state machine, pure. ``member`` sends its requests.
"""
