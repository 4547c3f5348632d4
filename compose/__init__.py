"""Run Fairlead in containers: render a topology as a Compose project, with entry points for its containers.

In: a topology. Out: a folder with ``compose.yaml``, the brokers' settings, the topology with addresses, and secrets as
files. Open ``render`` first. ``entry`` has the entry points: they prepare Kafka, Mosquitto or Spark and then ``exec``
it. ``Dockerfile`` builds the images. ``kubernetes/`` has manifests for the same services.
"""
