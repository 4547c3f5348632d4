"""Tools for tests of ``simulators``."""
