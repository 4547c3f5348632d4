"""Is this machine fit for Fairlead? What other commands say only when they fail, said before.

``probe`` looks at the machine, ``programs``, ``limits`` and ``surroundings`` are pure functions from what it found to
findings, ``examine`` puts them together. Imports neither Spark nor a Kafka client, and starts nothing but the programs
that it asks for their versions.
"""
