"""The figures of the way in, all in one run: ``python -m benchmarks.edge``."""
