"""Tests: ``unit`` (pure, seconds), ``integration`` (real Kafka, Mosquitto and Spark, started once per run) and ``e2e``
(the command line as a user runs it). Nothing here is timed; figures are in ``benchmarks``.
"""
