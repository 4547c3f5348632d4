"""Tools for tests of ``shore``."""
