"""Long random runs (``make chaos``). They are not part of the ordinary test suite."""
