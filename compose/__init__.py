"""Fairlead in containers: a topology as a Compose project, and what its containers run at their start.

In: a topology. Out: a folder with ``compose.yaml``, the brokers' settings, the topology with addresses, secrets as
files. Open ``render`` first. ``entry`` is what runs inside: Kafka and Mosquitto made ready and replaced by the real
programs. ``Dockerfile`` makes the images, ``kubernetes/`` has the same as manifests.
"""
