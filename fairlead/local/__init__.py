"""Sites as local processes: a real single-node Kafka and a real Mosquitto each, on loopback, under one state folder.

In: names of sites and their users. Out: running processes that outlive the terminal, and endpoints to reach them.
Uses ``fairlead.jars``, endpoints, errors and folders; knows nothing of topologies or of the Kafka wire.
"""
