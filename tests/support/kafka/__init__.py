"""Tools for tests of ``fairlead.kafka``."""
