"""Tools for tests of ``edge``."""
