"""Sites as local processes: a real single-node Kafka and a real Mosquitto each, on loopback, under one state folder.

In: names of sites and their users. Out: processes that outlive the terminal, and their endpoints. Open ``sites``
first. This package knows nothing of topologies or of the Kafka protocol.
"""
