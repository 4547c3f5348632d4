"""Tools for tests of ``replication``."""
