"""Replication side by side with MirrorMaker 2: the figures that ``docs/benchmarks/replication.md`` is made of.

In: nothing. Out: ``build/bench/replication.json`` with ``many_topics`` and ``bulk`` (both sides in one run, on the same
two brokers, one after the other), ``idle``, ``latency`` and ``growth`` (Fairlead alone), and ``machine``.
``python -m benchmarks.replication`` runs it, ``python -m benchmarks.replication.page`` writes the page.
"""
