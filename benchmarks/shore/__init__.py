"""The parts of ``python -m benchmarks.shore``, a module each."""
