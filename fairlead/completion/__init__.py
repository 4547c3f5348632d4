"""What a shell offers after TAB, soon enough for whoever waits for it: without importing the commands.

``commands.json`` has every command with its options, made of the commands by ``python -m tools.completion`` and held
to them by a test; ``light`` makes of it commands that can only be completed, ``values`` has the names of topologies,
sites, customers and so on. Imports typer, and YAML when there is something to read; neither a Kafka client nor Spark.
"""
