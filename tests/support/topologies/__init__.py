"""Tools for tests of ``topologies``."""
