"""The figures of shore, all in one run: ``python -m benchmarks.shore``. A module for each part, see ``parts``."""
