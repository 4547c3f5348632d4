"""Long random runs (``make chaos``). Not part of the ordinary tests."""
