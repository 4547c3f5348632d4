"""Figures, never tests: each module measures one part against a peer in the same run and writes ``build/bench``.

In: real brokers started for the purpose. Out: a table, and ``build/bench/NAME.json`` with figures, ratios and the
machine. ``make bench`` runs them all; each also runs by itself, ``python -m benchmarks.NAME``.
"""
